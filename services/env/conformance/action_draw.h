#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_ACTION_DRAW_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_ACTION_DRAW_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "flotilla/v1/env.pb.h"
#include "services/base/random.h"

namespace flotilla {

// Elements of one row of a leaf whose specification was checked.
int64_t Elements(const v1::Leaf& leaf);

// How many values element `i` has; 0: it is not discrete.
int64_t NumValues(const v1::Leaf& leaf, int64_t i);

// The bounds of element `i`; infinite where none is given.
float LowOf(const v1::Leaf& leaf, int64_t i);
float HighOf(const v1::Leaf& leaf, int64_t i);

// The sum of them: bytes of a mask. 0: not all elements are discrete.
int64_t AllValues(const v1::Leaf& leaf);

// The observation leaf that masks action leaf `index`; -1: none that fits does.
int MaskLeafOf(const v1::EnvSpec& spec, int index);

// The path that a mask for it is to be found at; "": there is none.
const std::string& MaskPathOf(const v1::EnvSpec& spec, int index);

// Actions at random, within the specification and what masks allow. Every row
// draws from its own generator, so that its actions depend on nothing but
// `seed`, the row and what its masks were.
//
// Not thread-safe.
class ActionDraw {
 public:
  ActionDraw(const v1::EnvSpec& spec, int num_envs, uint64_t seed);

  // Appends row `row`'s action, per leaf, to `actions`. `observation(leaf)`:
  // the row's own bytes.
  using RowObservation = std::function<absl::string_view(int leaf)>;
  void Draw(int row, const RowObservation& observation,
            v1::ActionBatch* actions);

 private:
  void DrawLeaf(const v1::Leaf& leaf, absl::string_view mask, Random* random,
                std::string* out);

  const v1::EnvSpec spec_;
  std::vector<Random> random_;
};

// An action of one row out of range, per leaf, and what is wrong with it in
// words; nullopt if every value is in range.
struct BadAction {
  int leaf = 0;
  std::string bytes;  // of one row of that leaf
  std::string words;
};
std::optional<BadAction> OutOfRange(const v1::EnvSpec& spec);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_ACTION_DRAW_H_
