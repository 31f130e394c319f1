#ifndef FLOTILLA_SERVICES_COORDINATOR_RANKS_H_
#define FLOTILLA_SERVICES_COORDINATOR_RANKS_H_

#include <string>
#include <vector>

#include "flotilla/v1/coordinator.pb.h"

namespace flotilla {

// A rank of the generation before: who had it, and whether that very process is
// still there.
struct PreviousPlace {
  std::string id;
  bool survives = false;
};

// Gives the learners of a new generation their ranks: the result holds
// `learners` by rank. `previous` is the generation before, by rank.
//
//   - Survivors keep their order, and their very ranks while those exist in the
//     new world.
//   - A place that is free goes to whoever had it (a replaced process has the
//     same id), then to whoever asked for it (Member.requested_rank), then in
//     order of node, local rank and id.
//
// `local_world_size` becomes the number of learners on the same node.
std::vector<v1::Member> RankLearners(
    std::vector<v1::Member> learners,
    const std::vector<PreviousPlace>& previous);

// Whether `a` comes before `b` when nothing else decides: by the rank asked
// for, node, local rank and id.
bool ComesBefore(const v1::Member& a, const v1::Member& b);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_RANKS_H_
