#include "learner/rollout/spaces.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

int64_t NumElements(const v1::Leaf& leaf) {
  int64_t n = 1;
  for (int64_t d : leaf.shape()) n *= d;
  return n;
}

absl::Status DescribeObservation(const v1::EnvSpec& spec, Spaces* out) {
  if (spec.observation_size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "env \"", spec.env_id(), "\": the specification has no observation"));
  }
  const v1::Leaf& first = spec.observation(0);
  if (spec.observation_size() == 1 && first.dtype() == v1::UINT8 &&
      first.shape_size() == 2) {
    out->frames = true;
    out->stack = std::max(1, first.frame_stack());
    out->height = first.shape(0);
    out->width = first.shape(1);
    out->features = out->height * out->width;
    return absl::OkStatus();
  }
  for (const v1::Leaf& leaf : spec.observation()) {
    if (leaf.frame_stack() > 1) {
      return absl::UnimplementedError(absl::StrCat(
          "env \"", spec.env_id(), "\": observation leaf \"", leaf.path(),
          "\" asks for ", leaf.frame_stack(),
          " stacked frames; only a single UINT8 leaf of shape [H, W] can be "
          "stacked"));
    }
    out->features += NumElements(leaf);
  }
  return absl::OkStatus();
}

float BoundAt(const google::protobuf::RepeatedField<float>& bounds, int i,
              float unset) {
  if (bounds.empty()) return unset;
  return bounds.size() == 1 ? bounds[0] : bounds[i];
}

absl::Status DescribeAction(const v1::EnvSpec& spec, Spaces* out) {
  if (spec.action_size() != 1) {
    return absl::UnimplementedError(
        absl::StrCat("env \"", spec.env_id(), "\" has ", spec.action_size(),
                     " action leaves; one is supported"));
  }
  const v1::Leaf& leaf = spec.action(0);
  if (leaf.dtype() == v1::INT64 && leaf.num_values() > 0 &&
      NumElements(leaf) == 1) {
    out->actions = leaf.num_values();
    return absl::OkStatus();
  }
  if (leaf.dtype() != v1::FLOAT32) {
    return absl::UnimplementedError(absl::StrCat(
        "env \"", spec.env_id(), "\": action leaf \"", leaf.path(),
        "\" is neither one discrete INT64 value nor a FLOAT32 array"));
  }
  out->continuous = true;
  out->actions = NumElements(leaf);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (int i = 0; i < out->actions; ++i) {
    out->action_low.push_back(BoundAt(leaf.low(), i, -kInf));
    out->action_high.push_back(BoundAt(leaf.high(), i, kInf));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Spaces> DescribeSpaces(const v1::EnvSpec& spec) {
  Spaces spaces;
  RETURN_IF_ERROR(DescribeObservation(spec, &spaces));
  RETURN_IF_ERROR(DescribeAction(spec, &spaces));
  return spaces;
}

}  // namespace flotilla
