#ifndef FLOTILLA_LEARNER_COLLECTIVE_RENDEZVOUS_H_
#define FLOTILLA_LEARNER_COLLECTIVE_RENDEZVOUS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// How ranks meet through the coordinator before they can talk to each other.

// Tells the others `value` under `topic` and waits for theirs: [world_size], by
// rank. Once for each topic in a generation.
// Errors: kDeadlineExceeded naming the ranks that did not come, and who they
// are; kAborted once the generation is fenced.
absl::StatusOr<std::vector<std::string>> ExchangeAll(
    const v1::Assignment& assignment, CoordinatorClient* coordinator,
    const std::string& topic, const std::string& value, absl::Duration timeout);

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
