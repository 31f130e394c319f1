#ifndef FLOTILLA_LEARNER_COLLECTIVE_RENDEZVOUS_H_
#define FLOTILLA_LEARNER_COLLECTIVE_RENDEZVOUS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// How ranks meet through the coordinator before they can talk to each other.

// What a rank has told in a generation: topics and values. A coordinator that was
// started again has forgotten it, and some peer may not have heard it by then.
using Told = std::vector<std::pair<std::string, std::string>>;

// How often to tell it again, for as long as a peer may need it.
inline constexpr absl::Duration kTellAgain = absl::Seconds(2);

// Tells the others `value` under `topic` and waits for theirs: [world_size], by
// rank. Once for each topic in a generation. Who meets under several topics, one
// after the other, keeps `told`, which this is added to: while it waits, all of that
// is told again to peers that are not as far.
// Errors: kDeadlineExceeded naming the ranks that did not come, and who they
// are; kAborted once the generation is fenced.
absl::StatusOr<std::vector<std::string>> ExchangeAll(
    const v1::Assignment& assignment, CoordinatorClient* coordinator,
    const std::string& topic, const std::string& value, absl::Duration timeout,
    Told* told = nullptr);

// Tells all of it once more, if the coordinator is there. Errors: kAborted once
// the generation is fenced.
absl::Status TellAgain(const v1::Assignment& assignment,
                       CoordinatorClient* coordinator, const Told& told);

// As ExchangeAll, without values: waits until all ranks have called it.
absl::Status MeetAll(const v1::Assignment& assignment,
                     CoordinatorClient* coordinator, const std::string& topic,
                     absl::Duration timeout);

// Whether they say that they run on the same host: two may have one name.
bool OnSameHost(const v1::Member& a, const v1::Member& b);

// Whether all learners do.
bool OnOneHost(const v1::Assignment& assignment);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_RENDEZVOUS_H_
