#include "services/env/conformance/action_draw.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float BoundAt(const google::protobuf::RepeatedField<float>& bounds, int64_t i,
              float none) {
  if (bounds.empty()) return none;
  return bounds.size() == 1 ? bounds[0] : bounds[static_cast<int>(i)];
}

template <typename T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendInteger(v1::DType dtype, int64_t value, std::string* out) {
  if (dtype == v1::UINT8) {
    Append(static_cast<uint8_t>(value), out);
  } else {
    Append(value, out);
  }
}

// Of the `values` many from `first` on, one that `mask` allows; any if it
// allows none, or there is no mask.
int64_t DrawValue(int64_t values, absl::string_view mask, int64_t first,
                  Random* random) {
  std::vector<int64_t> allowed;
  const int64_t size = static_cast<int64_t>(mask.size());
  for (int64_t v = 0; v < values && first + v < size; ++v) {
    if (mask[static_cast<size_t>(first + v)] != 0) allowed.push_back(v);
  }
  if (!allowed.empty()) return allowed[random->Below(allowed.size())];
  return static_cast<int64_t>(random->Below(static_cast<uint64_t>(values)));
}

// Where there is no bound, near the other one, or 0.
double DrawNumber(double low, double high, Random* random) {
  if (std::isfinite(low) && std::isfinite(high)) {
    return random->Uniform(low, high);
  }
  if (std::isfinite(low)) return low + random->Uniform();
  if (std::isfinite(high)) return high - random->Uniform();
  return random->Uniform(-1, 1);
}

}  // namespace

int64_t Elements(const v1::Leaf& leaf) {
  int64_t elements = 1;
  for (const int64_t dim : leaf.shape()) elements *= dim;
  return elements;
}

int64_t NumValues(const v1::Leaf& leaf, int64_t i) {
  return leaf.num_values_each_size() > 0
             ? leaf.num_values_each(static_cast<int>(i))
             : leaf.num_values();
}

float LowOf(const v1::Leaf& leaf, int64_t i) {
  return BoundAt(leaf.low(), i, -kInfinity);
}

float HighOf(const v1::Leaf& leaf, int64_t i) {
  return BoundAt(leaf.high(), i, kInfinity);
}

int64_t AllValues(const v1::Leaf& leaf) {
  const int64_t elements = Elements(leaf);
  if (leaf.num_values_each_size() == 0) return elements * leaf.num_values();
  int64_t sum = 0;
  for (const int64_t values : leaf.num_values_each()) sum += values;
  return sum;
}

const std::string& MaskPathOf(const v1::EnvSpec& spec, int index) {
  const v1::Leaf& action = spec.action(index);
  const bool only = spec.action_size() == 1 && action.mask_path().empty();
  return only ? spec.action_mask_path() : action.mask_path();
}

int MaskLeafOf(const v1::EnvSpec& spec, int index) {
  const std::string& path = MaskPathOf(spec, index);
  const int64_t values = AllValues(spec.action(index));
  if (path.empty() || values == 0) return -1;
  for (int i = 0; i < spec.observation_size(); ++i) {
    const v1::Leaf& leaf = spec.observation(i);
    if (leaf.path() == path && leaf.dtype() == v1::UINT8 &&
        Elements(leaf) == values) {
      return i;
    }
  }
  return -1;
}

ActionDraw::ActionDraw(const v1::EnvSpec& spec, int num_envs, uint64_t seed)
    : spec_(spec) {
  for (int row = 0; row < num_envs; ++row) {
    random_.emplace_back(HashSeed({seed, static_cast<uint64_t>(row)}));
  }
}

void ActionDraw::Draw(int row, const RowObservation& observation,
                      v1::ActionBatch* actions) {
  while (actions->action_size() < spec_.action_size()) actions->add_action();
  for (int i = 0; i < spec_.action_size(); ++i) {
    const int mask = MaskLeafOf(spec_, i);
    DrawLeaf(spec_.action(i),
             mask < 0 ? absl::string_view() : observation(mask), &random_[row],
             actions->mutable_action(i));
  }
}

void ActionDraw::DrawLeaf(const v1::Leaf& leaf, absl::string_view mask,
                          Random* random, std::string* out) {
  const int64_t elements = Elements(leaf);
  int64_t first = 0;  // of the element's values in the mask
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t values = NumValues(leaf, i);
    if (values > 0) {
      AppendInteger(leaf.dtype(), DrawValue(values, mask, first, random), out);
      first += values;
      continue;
    }
    const double low = LowOf(leaf, i), high = HighOf(leaf, i);
    if (leaf.dtype() == v1::FLOAT32) {
      const auto number = static_cast<float>(DrawNumber(low, high, random));
      Append(std::clamp(number, LowOf(leaf, i), HighOf(leaf, i)), out);
      continue;
    }
    const double most = leaf.dtype() == v1::UINT8 ? 255 : 1e15;
    const double least = leaf.dtype() == v1::UINT8 ? 0 : -1e15;
    const double number = std::round(DrawNumber(low, high, random));
    AppendInteger(leaf.dtype(),
                  static_cast<int64_t>(std::clamp(number, least, most)), out);
  }
}

std::optional<BadAction> OutOfRange(const v1::EnvSpec& spec) {
  for (int index = 0; index < spec.action_size(); ++index) {
    const v1::Leaf& leaf = spec.action(index);
    const int64_t elements = Elements(leaf);
    BadAction bad;
    bad.leaf = index;
    bool complete = true;
    for (int64_t i = 0; i < elements; ++i) {
      const int64_t values = NumValues(leaf, i);
      if (leaf.dtype() == v1::FLOAT32) {
        // Not a number is in nobody's range.
        Append(std::numeric_limits<float>::quiet_NaN(), &bad.bytes);
        bad.words = "NaN";
      } else if (values > 0 && (leaf.dtype() == v1::INT64 || values < 256)) {
        AppendInteger(leaf.dtype(), values, &bad.bytes);
        bad.words = absl::StrCat(values, ", of ", values, " values");
      } else {
        complete = false;  // every value that fits is in range
      }
    }
    if (!complete) continue;
    bad.words = absl::StrCat("action leaf ", index, " (\"", leaf.path(),
                             "\") of ", bad.words);
    return bad;
  }
  return std::nullopt;
}

}  // namespace flotilla
