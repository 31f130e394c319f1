#include "services/env/spaces.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// From this height and width on an array of three dimensions is an image:
// what NATURE_CNN's convolutions need.
constexpr int64_t kLeastImage = 36;
// A wider one-hot vector is mostly zeros: it has to be embedded.
constexpr int64_t kMaxOneHot = 4096;
// Ages up to a stack's oldest frame are bytes (learner/rollout/
// observation_store.h).
constexpr int64_t kMaxStack = 256;

int64_t NumElements(const v1::Leaf& leaf) {
  int64_t n = 1;
  for (const int64_t d : leaf.shape()) n *= d;
  return n;
}

std::string Describe(const char* what, const v1::Leaf& leaf) {
  return absl::StrCat(
      "its ", what,
      leaf.path().empty() ? "" : absl::StrCat(" \"", leaf.path(), "\""), " (",
      v1::DType_Name(leaf.dtype()), " [", absl::StrJoin(leaf.shape(), ", "),
      "])");
}

// The values of each element of a discrete leaf; empty for numbers.
std::vector<int64_t> ValuesOf(const v1::Leaf& leaf) {
  if (leaf.dtype() == v1::FLOAT32) return {};
  if (leaf.num_values_each_size() > 0) {
    return {leaf.num_values_each().begin(), leaf.num_values_each().end()};
  }
  if (leaf.num_values() == 0) return {};
  return std::vector<int64_t>(NumElements(leaf), leaf.num_values());
}

bool IsBinary(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](int64_t n) { return n <= 2; });
}

// Fills an image's height, width and channels. Returns whether `leaf` is one;
// `asked`: where it could be one, it is.
bool DescribeImage(const v1::Leaf& leaf, bool asked, LeafSpec* out) {
  if (!ValuesOf(leaf).empty() || leaf.dtype() == v1::INT64) return false;
  const auto& shape = leaf.shape();
  if (shape.size() == 2) {
    if (leaf.dtype() != v1::UINT8 && !asked) return false;
    out->channels = 1;
    out->height = shape[0];
    out->width = shape[1];
  } else if (shape.size() == 3) {
    out->channels_last = shape[2] <= shape[0];
    out->channels = out->channels_last ? shape[2] : shape[0];
    out->height = out->channels_last ? shape[0] : shape[1];
    out->width = out->channels_last ? shape[1] : shape[2];
    if (!asked && (out->height < kLeastImage || out->width < kLeastImage)) {
      return false;
    }
  } else {
    return false;
  }
  out->kind = LeafKind::kImage;
  out->dtype = leaf.dtype();
  out->shape.assign(shape.begin(), shape.end());
  return true;
}

// Adds a leaf's numbers, or one-hot vectors, to a vector.
void Join(const v1::Leaf& leaf, int index, LeafSpec* vector) {
  LeafSpec::Part part;
  part.leaf = index;
  part.dtype = leaf.dtype();
  part.elements = part.columns = NumElements(leaf);
  std::vector<int64_t> values = ValuesOf(leaf);
  if (!IsBinary(values)) {
    part.columns = 0;
    for (const int64_t n : values) part.columns += n;
    part.one_hot = std::move(values);
  }
  vector->parts.push_back(std::move(part));
}

// Numbers first, then one-hot vectors, each in the environment's order.
void LayOut(LeafSpec* vector) {
  int64_t column = 0;
  for (const bool one_hot : {false, true}) {
    for (LeafSpec::Part& part : vector->parts) {
      if (part.one_hot.empty() == one_hot) continue;
      part.column = column;
      column += part.columns;
    }
    if (!one_hot) vector->numbers = column;
  }
  vector->shape = {column};
}

// Leaf paths of action masks, in the order of actions; "" where there is none.
std::vector<std::string> MaskPaths(const v1::EnvSpec& spec) {
  std::vector<std::string> paths;
  for (const v1::Leaf& leaf : spec.action()) paths.push_back(leaf.mask_path());
  if (paths.size() == 1 && paths[0].empty()) {
    paths[0] = spec.action_mask_path();
  }
  return paths;
}

bool IsMask(const std::vector<std::string>& masks, const v1::Leaf& leaf) {
  return !leaf.path().empty() &&
         std::find(masks.begin(), masks.end(), leaf.path()) != masks.end();
}

absl::Status DescribeActions(const v1::EnvSpec& spec, ActionSpace* out) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const v1::Leaf& leaf : spec.action()) {
    const int64_t n = NumElements(leaf);
    const std::vector<int64_t> values = ValuesOf(leaf);
    if (!values.empty() && leaf.dtype() == v1::UINT8 &&
        *std::max_element(values.begin(), values.end()) > 256) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe("action", leaf),
                       " has more values than a UINT8 holds; want INT64"));
    }
    if (!values.empty()) {
      out->leaf.push_back({true, leaf.dtype(), out->choices(), n});
      out->num_values.insert(out->num_values.end(), values.begin(),
                             values.end());
      continue;
    }
    if (leaf.dtype() != v1::FLOAT32) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe("action", leaf),
          " is neither discrete values (num_values) nor a FLOAT32 array. Wrap "
          "the environment so that its actions are Discrete, MultiDiscrete, "
          "MultiBinary or a Box of floats"));
    }
    const auto bound = [&](const auto& bounds, int64_t i, float unset) {
      if (bounds.empty()) return unset;
      return bounds.size() == 1 ? bounds[0] : bounds[static_cast<int>(i)];
    };
    out->leaf.push_back({false, leaf.dtype(), out->continuous, n});
    for (int64_t i = 0; i < n; ++i) {
      out->low.push_back(bound(leaf.low(), i, -kInf));
      out->high.push_back(bound(leaf.high(), i, kInf));
    }
    out->continuous += n;
  }
  if (out->leaf.empty()) {
    return absl::InvalidArgumentError("its specification has no action");
  }
  return absl::OkStatus();
}

absl::Status DescribeMask(const v1::EnvSpec& spec, Spaces* out) {
  const std::vector<std::string> paths = MaskPaths(spec);
  LeafSpec mask;
  mask.kind = LeafKind::kMask;
  mask.dtype = v1::UINT8;
  mask.path = "action_mask";
  for (int a = 0; a < spec.action_size(); ++a) {
    if (paths[a].empty()) continue;
    const std::string action = Describe("action", spec.action(a));
    if (!out->action.leaf[a].discrete) {
      return absl::InvalidArgumentError(
          absl::StrCat(action, " has a mask (mask_path \"", paths[a],
                       "\"), and only discrete values can be forbidden"));
    }
    const auto found = std::find_if(
        spec.observation().begin(), spec.observation().end(),
        [&](const v1::Leaf& leaf) { return leaf.path() == paths[a]; });
    int64_t column = 0, columns = 0;
    for (int64_t i = 0; i < out->action.choices(); ++i) {
      const int64_t from = i - out->action.leaf[a].first;
      if (from < 0) column += out->action.num_values[i];
      if (from >= 0 && from < out->action.leaf[a].elements) {
        columns += out->action.num_values[i];
      }
    }
    if (found == spec.observation().end() || found->dtype() != v1::UINT8 ||
        NumElements(*found) != columns) {
      return absl::InvalidArgumentError(
          absl::StrCat(action, " names \"", paths[a],
                       "\" as its mask, which has to be a UINT8 leaf of the "
                       "observation with ",
                       columns, " elements, one for each value"));
    }
    LeafSpec::Part part;
    part.leaf = static_cast<int>(found - spec.observation().begin());
    part.dtype = v1::UINT8;
    part.elements = part.columns = columns;
    part.column = column;
    mask.parts.push_back(part);
  }
  if (mask.parts.empty()) return absl::OkStatus();
  mask.shape = {out->action.logits()};
  out->mask = static_cast<int>(out->observation.size());
  out->observation.push_back(std::move(mask));
  return absl::OkStatus();
}

// The configuration of the leaf at `path`, or null.
const v1::LeafConfig* ConfigOf(const v1::ModelConfig& model,
                               const std::string& path) {
  for (const v1::LeafConfig& leaf : model.leaf()) {
    if (leaf.path() == path) return &leaf;
  }
  return nullptr;
}

absl::Status CheckLeafConfigs(const v1::EnvSpec& spec,
                              const v1::ModelConfig& model,
                              const std::vector<std::string>& masks) {
  std::vector<std::string> seen;
  for (const v1::LeafConfig& config : model.leaf()) {
    std::vector<std::string> paths;
    for (const v1::Leaf& leaf : spec.observation()) {
      if (!IsMask(masks, leaf)) paths.push_back(leaf.path());
    }
    if (std::find(paths.begin(), paths.end(), config.path()) == paths.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.leaf names \"", config.path(),
                       "\", which is no leaf of its observation; there is \"",
                       absl::StrJoin(paths, "\", \""), "\"",
                       DidYouMean(config.path(), paths)));
    }
    if (std::find(seen.begin(), seen.end(), config.path()) != seen.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model.leaf names \"", config.path(), "\" twice; want it once"));
    }
    seen.push_back(config.path());
  }
  return absl::OkStatus();
}

// A leaf that is encoded on its own terms, as `config` (or null) has them.
// nullopt: it is joined with others. `only`: no other leaf is seen.
absl::StatusOr<std::optional<LeafSpec>> DescribeAlone(
    const v1::EnvSpec& spec, const v1::ModelConfig& model, int index,
    bool only) {
  const v1::Leaf& leaf = spec.observation(index);
  const v1::LeafConfig* config = ConfigOf(model, leaf.path());
  LeafSpec out;
  out.path = leaf.path();
  out.stack = std::max<int64_t>(1, leaf.frame_stack());
  if (config != nullptr && config->frame_stack() > 0) {
    out.stack = config->frame_stack();
  }
  if (out.stack > kMaxStack) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe("observation", leaf), " has ", out.stack,
                     " stacked frames, want at most ", kMaxStack));
  }
  v1::Encoder encoder =
      config != nullptr ? config->encoder() : v1::ENCODER_AUTO;
  if (encoder == v1::ENCODER_AUTO && only) encoder = model.encoder();
  const bool cnn = encoder == v1::NATURE_CNN || encoder == v1::RESNET;
  const std::vector<int64_t> values = ValuesOf(leaf);
  if (encoder == v1::EMBEDDING) {
    if (values.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe("observation", leaf),
          " has no discrete values to embed; leave model.leaf's encoder out"));
    }
    out.kind = LeafKind::kDiscrete;
    out.dtype = v1::INT64;
    out.num_values = values;
    out.shape = {NumElements(leaf)};
  } else if (encoder != v1::MLP && DescribeImage(leaf, cnn, &out)) {
  } else if (cnn && config != nullptr && config->encoder() == encoder) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe("observation", leaf),
                     " is no image, and model.leaf "
                     "asks for ",
                     v1::Encoder_Name(encoder),
                     "; want two or three dimensions of numbers, or MLP"));
  } else {
    if (config == nullptr && out.stack == 1) return std::nullopt;
    Join(leaf, index, &out);
    LayOut(&out);
    return out;
  }
  LeafSpec::Part part;
  part.leaf = index;
  part.dtype = leaf.dtype();
  part.elements = part.columns = NumElements(leaf);
  out.parts = {part};
  return out;
}

absl::Status CheckOneHot(const v1::EnvSpec& spec, const LeafSpec& leaf) {
  for (const LeafSpec::Part& part : leaf.parts) {
    if (part.one_hot.empty() || part.columns <= kMaxOneHot) continue;
    const v1::Leaf& seen = spec.observation(part.leaf);
    return absl::InvalidArgumentError(
        absl::StrCat(Describe("observation", seen), " has ", part.columns,
                     " values, too many for a one-hot vector (", kMaxOneHot,
                     "). Embed it: --set 'model.leaf={path: \"", seen.path(),
                     "\" encoder: EMBEDDING hidden: [64]}'"));
  }
  return absl::OkStatus();
}

// A stranger's claim may be any: what overflows is more than anybody has.
int64_t SaturatingSum(int64_t a, int64_t b) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return b > kMost - a ? kMost : a + b;
}

}  // namespace

int64_t LeafSpec::elements() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

int64_t LeafSpec::bytes() const {
  return elements() * (dtype == v1::UINT8 ? 1 : dtype == v1::INT64 ? 8 : 4);
}

int64_t ActionSpace::logits() const {
  int64_t sum = 0;
  for (const int64_t n : num_values) sum = SaturatingSum(sum, n);
  return sum;
}

int64_t Spaces::max_stack() const {
  int64_t most = 1;
  for (const LeafSpec& leaf : observation) most = std::max(most, leaf.stack);
  return most;
}

std::vector<int> Spaces::encoded() const {
  std::vector<int> leaves;
  for (int i = 0; i < static_cast<int>(observation.size()); ++i) {
    if (i != mask) leaves.push_back(i);
  }
  return leaves;
}

int64_t Spaces::normalized() const {
  const LeafSpec& first = observation[0];
  return first.kind == LeafKind::kVector && first.stack == 1 ? first.numbers
                                                             : 0;
}

std::string LeafTitle(const LeafSpec& leaf) {
  return leaf.path.empty() ? "the observation"
                           : absl::StrCat("observation \"", leaf.path, "\"");
}

absl::StatusOr<Spaces> DescribeSpaces(const v1::EnvSpec& spec,
                                      const v1::ModelConfig& model) {
  if (spec.observation_size() == 0) {
    return absl::InvalidArgumentError("its specification has no observation");
  }
  const std::vector<std::string> masks = MaskPaths(spec);
  RETURN_IF_ERROR(CheckLeafConfigs(spec, model, masks));
  Spaces spaces;
  RETURN_IF_ERROR(DescribeActions(spec, &spaces.action));
  const bool alone_seen =
      1 == std::count_if(spec.observation().begin(), spec.observation().end(),
                         [&](const v1::Leaf& l) { return !IsMask(masks, l); });
  LeafSpec joined;
  std::vector<LeafSpec> alone;
  for (int i = 0; i < spec.observation_size(); ++i) {
    const v1::Leaf& leaf = spec.observation(i);
    if (IsMask(masks, leaf)) continue;
    ASSIGN_OR_RETURN(std::optional<LeafSpec> own,
                     DescribeAlone(spec, model, i, alone_seen));
    if (own.has_value()) {
      RETURN_IF_ERROR(CheckOneHot(spec, *own));
      alone.push_back(*std::move(own));
    } else {
      joined.path = joined.parts.empty() ? leaf.path() : "vector";
      Join(leaf, i, &joined);
    }
  }
  if (!joined.parts.empty()) {
    // Weights and what a network of one's own is given go by these names.
    while (std::any_of(alone.begin(), alone.end(), [&](const LeafSpec& leaf) {
      return leaf.path == joined.path;
    })) {
      joined.path += "_";
    }
    LayOut(&joined);
    RETURN_IF_ERROR(CheckOneHot(spec, joined));
    spaces.observation.push_back(std::move(joined));
  }
  for (LeafSpec& leaf : alone) spaces.observation.push_back(std::move(leaf));
  if (spaces.observation.empty()) {
    return absl::InvalidArgumentError(
        "its observation is nothing but action masks; want a leaf to see");
  }
  RETURN_IF_ERROR(DescribeMask(spec, &spaces));
  return spaces;
}

}  // namespace flotilla
