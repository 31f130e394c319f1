#ifndef FLOTILLA_TESTS_LEARNER_COLLECTIVE_RANKS_H_
#define FLOTILLA_TESTS_LEARNER_COLLECTIVE_RANKS_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "flotilla/v1/coordinator.pb.h"
#include "tests/testing/fake_coordinator_client.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {

// Rank `rank`'s place in a generation of `world_size` learners on one host.
inline v1::Assignment MakeAssignment(int rank, int world_size,
                                     uint64_t generation = 1) {
  v1::Assignment assignment;
  assignment.set_generation(generation);
  assignment.set_rank(rank);
  assignment.set_world_size(world_size);
  for (int r = 0; r < world_size; ++r) {
    v1::Member* member = assignment.add_learner();
    member->set_id(absl::StrCat("learner/0/", r));
    member->set_host("host-a");
    member->set_device("cpu");
  }
  return assignment;
}

// Runs `body` on one thread a rank, each with a coordinator client of its own.
inline void RunRanks(int world_size,
                     const std::function<void(const v1::Assignment&,
                                              FakeCoordinatorClient*)>& body) {
  TempDir folder;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      FakeCoordinatorClient coordinator(folder.path());
      body(MakeAssignment(rank, world_size), &coordinator);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_COLLECTIVE_RANKS_H_
