#ifndef FLOTILLA_LEARNER_ACTOR_OPPONENTS_H_
#define FLOTILLA_LEARNER_ACTOR_OPPONENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "learner/kernels/draws.h"
#include "learner/nn/policy.h"

namespace flotilla {

// Who plays the slots of a game that are not learned from: earlier selves, or
// the policy that collects itself. A game keeps its opponent to its end, whatever
// becomes of the pool meanwhile.
//
// The policies are used by one collector at a time.
struct Opponents {
  struct Player {
    int64_t snapshot = 0;            // which; grows
    std::shared_ptr<Policy> policy;  // null: the one that collects
    double share = 0;                // of the games, among `players`
  };
  std::vector<Player> players;
  double latest_share = 1;  // of the games, of the policy that collects

  // Who plays the next game.
  Player Choose(Draws* draws) const {
    if (draws->Uniform() < latest_share) return {};
    double at = draws->Uniform();
    for (const Player& player : players) {
      at -= player.share;
      if (at < 0) return player;
    }
    return players.empty() ? Player{} : players.back();
  }
};

// Whether seat `seat` of a pool whose environments have `agents` is learned from:
// of environment e slots e, e + 1, ... (modulo the agents) are opponents'.
inline bool LearnsOf(int64_t seat, int agents, int opponent_slots) {
  const int64_t game = seat / agents;
  // How far behind the first slot that is an opponent's.
  return (seat % agents - game % agents + agents) % agents >= opponent_slots;
}

// How a game against an earlier self ended for the learner.
struct GameResult {
  int64_t snapshot = 0;
  double score = 0;  // 1 won, 0.5 drawn, 0 lost
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_OPPONENTS_H_
