#ifndef FLOTILLA_SERVICES_ENV_SPACES_H_
#define FLOTILLA_SERVICES_ENV_SPACES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

enum class LeafKind {
  kVector,    // numbers, float32
  kImage,     // pixels, uint8, or float32 as they are
  kDiscrete,  // values to embed, int64
  kMask,      // which actions are allowed, uint8; seen by no encoder
};

// One array of an observation as a learner stores it and a network encodes it:
// one leaf of the environment's, or several joined end to end.
struct LeafSpec {
  // Where the numbers of one leaf of the environment go.
  struct Part {
    int leaf = 0;  // of EnvSpec.observation
    v1::DType dtype = v1::FLOAT32;
    int64_t elements = 0;
    // Of each element: its values enter as a one-hot vector. Empty: as numbers.
    std::vector<int64_t> one_hot;
    int64_t column = 0;   // the first
    int64_t columns = 0;  // elements, or the sum of one_hot
  };

  std::string path;  // "rgb"; of joined leaves "vector"
  LeafKind kind = LeafKind::kVector;
  v1::DType dtype = v1::FLOAT32;  // in memory
  std::vector<int64_t> shape;     // of one row without the stack: [D], [H, W]
  // Newest steps that are seen, oldest first along a leading axis if above 1 or
  // of an image; at an episode's start the reset's is repeated.
  int64_t stack = 1;  // k
  // Images: [C, H, W], [H, W, C] or, with one channel, [H, W].
  int64_t channels = 0, height = 0, width = 0;
  bool channels_last = false;
  std::vector<int64_t> num_values = {};  // kDiscrete: of each element
  std::vector<Part> parts;
  // kVector: the first columns, which a running mean and variance may scale;
  // one-hot columns come after them.
  int64_t numbers = 0;

  int64_t elements() const;  // of one row without the stack
  int64_t bytes() const;     // of the same
};

// What goes out: K discrete choices and A continuous values, of all action
// leaves in the environment's order.
struct ActionSpace {
  struct Leaf {
    bool discrete = true;
    v1::DType dtype = v1::INT64;
    int64_t first = 0;  // of K or of A
    int64_t elements = 0;
  };
  std::vector<int64_t> num_values;  // [K]
  int64_t continuous = 0;           // A
  std::vector<float> low, high;     // [A]  infinite where there is no bound
  std::vector<Leaf> leaf;

  int64_t choices() const { return static_cast<int64_t>(num_values.size()); }
  int64_t logits() const;  // L: the sum of num_values
  // What a policy says of them all: logits, then means. [L + A]
  int64_t outputs() const { return logits() + continuous; }
};

// An environment's spaces as a learner uses them.
struct Spaces {
  std::vector<LeafSpec> observation;  // joined leaves first
  int mask = -1;  // of observation: [L], kMask, 0 forbids; below 0: none
  ActionSpace action;

  int64_t max_stack() const;
  // Leaves that an encoder sees: all but the mask.
  std::vector<int> encoded() const;
  // Columns that model.normalize_observations scales: `numbers` of the first
  // leaf, if that is a vector.
  int64_t normalized() const;
};

// What `model` makes of an environment's specification:
//
//   images     UINT8 of two dimensions [H, W], or three, of which the smaller of
//              the outer ones are channels, from 36 x 36 on; FLOAT32 of three
//              the same. Each a leaf of its own, unless MLP is asked for
//   discrete   one-hot; int64 where model.leaf asks for EMBEDDING
//   masks      those that action leaves name, joined in the order of actions
//   all else   numbers. Those without a model.leaf of their own are joined
//
// Errors: kInvalidArgument, naming the leaf, what it is and what would fit
// ("its action (INT64 []) is neither ...").
absl::StatusOr<Spaces> DescribeSpaces(const v1::EnvSpec& spec,
                                      const v1::ModelConfig& model);

// "rgb", or "the observation" where a leaf has no path.
std::string LeafTitle(const LeafSpec& leaf);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_SPACES_H_
