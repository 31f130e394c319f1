#ifndef FLOTILLA_SERVICES_COORDINATOR_LIMITS_H_
#define FLOTILLA_SERVICES_COORDINATOR_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "flotilla/v1/coordinator.pb.h"

// What one member may make the coordinator keep, or everyone be told; and how many
// may look on.

namespace flotilla {

constexpr size_t kMaxMembers = 100'000;
constexpr size_t kMaxEnvWorkers = 10'000;  // of one learner
// What all members together may say of themselves: GetStatus repeats it, in one
// message of 64 MiB at most. The last quarter is for registering.
constexpr size_t kMaxSaidBytes = 48 << 20;
constexpr size_t kMaxReportedBytes = kMaxSaidBytes / 4 * 3;
// Of WatchStatus, at a time. The thread that writes to each of them moves the
// clock too, and looking on may take no token: more of them would make it late,
// and it then takes nobody for dead.
constexpr size_t kMaxWatchers = 250;

// Incarnations count starts. No member's first is above the one, nor a
// replacement's further than the other from the one before: what jumps further
// leaves no room for those that come after.
constexpr uint64_t kMaxFirstIncarnation = uint64_t{1} << 32;
constexpr uint64_t kMaxIncarnationStep = 10'000;

// Words for people, cut to 1 KiB as PrintableText cuts: nobody can parse a message
// that has half a character in it.
std::string Shortened(const std::string& words);

// Errors: kInvalidArgument naming the field, its value and the limit.
absl::Status CheckMember(const v1::Member& member);
absl::Status CheckHeartbeat(const v1::Heartbeat& heartbeat);
// Of a learner's own, for servers that dial; "" is none.
absl::Status CheckDialAddress(const std::string& address);
absl::Status CheckLeaseId(const std::string& id);
absl::Status CheckLayoutDigest(const std::string& digest);
absl::Status CheckEvaluation(const v1::Evaluation& evaluation);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_LIMITS_H_
