#ifndef FLOTILLA_LEARNER_ACTOR_RESIDENT_ACTOR_H_
#define FLOTILLA_LEARNER_ACTOR_RESIDENT_ACTOR_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "learner/device/graph_cache.h"
#include "learner/kernels/draws.h"
#include "learner/nn/resident_policy.h"
#include "learner/rollout/observation_store.h"
#include "learner/rollout/rollout.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// Fills Rollout::there on the device that learns, while a collector fills the
// rollout on the host:
//
//   host     what rows see --+                                   +-- actions
//                            | one copy                          | one copy
//   device         observation, decision, log_prob, value, state -+
//
// What was seen crosses once and what was decided stays, but for the actions. A
// decision waits once, for those. All between the two copies is one graph where the
// device has them (device/graph_cache.h), for each rollout's memory and the rows
// that decide together: which step it is of, and where its random numbers are, the
// message says.
//
// Not thread-safe.
class ResidentActor {
 public:
  // Of B = `rows` rows.
  ResidentActor(const Spaces& spaces, int64_t rows, torch::Device device);

  // A rollout begins with what the last one led to. `policy` is borrowed until the
  // next Begin; `forget`: whatever it remembers.
  void Begin(const ResidentPolicy* policy, int64_t state_size, bool forget,
             Rollout* rollout);

  // Before its next decision the row forgets.
  void Forget(int64_t row);

  // Rows [first, first + rows) decide at step t. `fresh`: what they see has been
  // written since step t - 1, or the last End. Writes their actions on the host.
  void Decide(int64_t t, int64_t first, int64_t rows, bool fresh, Draws* draws);
  // Their values alone, which nothing waits for.
  void Value(int64_t t, int64_t first, int64_t rows, bool fresh);
  // Nobody is there at step t: values of 0.
  void Skip(int64_t t, int64_t first, int64_t rows);

  // The episode of step `at`, t * B + b, ended with what `final_row` shows
  // (ObservationStore::EncodeRow), and its value is wanted. Before Forget.
  void AddFinal(int64_t at, const std::vector<uint8_t>& final_row);

  // The rollout ends with step `end`. Nothing waits.
  void End(int64_t end);

 private:
  // Which rows a message is of, and what of them.
  struct Asked {
    int64_t first, rows;
    bool begins;  // a rollout: step 0
    bool fresh;   // it holds what they see
    bool act;     // not their values alone are wanted
  };
  // What a message begins with.
  struct Header {
    int64_t begin;                  // t * B + first
    std::array<int64_t, 2> stream;  // ResidentPolicy::Chance
    double exploration;             //
  };
  struct Parts {  // what follows, in bytes
    int64_t step, keep;
    int64_t all() const { return int64_t{sizeof(Header)} + step + keep; }
  };
  // What a graph of decisions reads and makes.
  struct Recorded {
    std::shared_ptr<Rollout> there;
    std::vector<torch::Tensor> memory;
    torch::Tensor message, actions;
  };

  Parts PartsOf(const Asked& asked) const;
  // On the host, on its way.
  torch::Tensor Pack(int64_t t, const Asked& asked, Draws* draws);
  // All on the device, by a message that is there. Values are kept, and what else was
  // decided is returned, [R] each.
  ResidentPolicy::Decision Ask(const Asked& asked, const torch::Tensor& message,
                               torch::Tensor* index);
  // Keeps that too, and returns what the host wants of it: the actions, in one tensor.
  torch::Tensor Act(const Asked& asked, const torch::Tensor& message);
  torch::Tensor ActByGraph(const Asked& asked, const torch::Tensor& message);
  void ValueFinals();

  const torch::Device device_;
  const int64_t rows_;
  const ActionSpace action_;
  const std::unique_ptr<GraphCache<Recorded>> graphs_;  // null: there are none
  ObservationStore carried_;  // one step, on the device
  const ResidentPolicy* policy_ = nullptr;
  Rollout* rollout_ = nullptr;
  int64_t state_size_ = 0;           // S
  torch::Tensor state_;              // [B, S] on the device
  std::vector<uint8_t> keep_;        // [B]  0: forgets before its next decision
  std::vector<int32_t> final_step_;  // [F]
  std::vector<uint8_t> final_rows_;  // [F, row_bytes]
  std::vector<torch::Tensor> final_state_;  // [F] of [1, S]
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_RESIDENT_ACTOR_H_
