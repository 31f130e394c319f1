#include "services/env/playable.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/env/group_layout.h"

namespace flotilla {
namespace {

// Values from which on a UINT8 array of two dimensions or more is an image.
constexpr int64_t kLeastImage = 256;

int64_t NumElements(const v1::Leaf& leaf) {
  int64_t n = 1;
  for (const int64_t d : leaf.shape()) n *= d;
  return n;
}

bool IsFrames(const v1::EnvSpec& spec) {
  return spec.observation_size() == 1 &&
         spec.observation(0).dtype() == v1::UINT8 &&
         spec.observation(0).shape_size() == 2;
}

}  // namespace

absl::Status CheckPlayable(const v1::RunConfig& config,
                           const v1::EnvSpec& spec) {
  RETURN_IF_ERROR(
      MakeGroupLayout(spec, /*num_envs=*/1, /*num_groups=*/1).status());
  if (spec.action_size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it has ", spec.action_size(),
        " action leaves; one is supported. Wrap the environment so that it "
        "takes one action: Discrete, or a Box of floats"));
  }
  const v1::Leaf& leaf = spec.action(0);
  const bool discrete = leaf.dtype() == v1::INT64 && leaf.num_values() > 0 &&
                        NumElements(leaf) == 1;
  if (!discrete && leaf.dtype() != v1::FLOAT32) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its action (", v1::DType_Name(leaf.dtype()), " [",
        absl::StrJoin(leaf.shape(), ", "),
        "]) is neither one discrete value nor an array of floats. Wrap the "
        "environment so that its actions are Discrete, or a Box of floats"));
  }
  const v1::Encoder encoder = config.model().encoder();
  const bool frames = IsFrames(spec);
  if (encoder != v1::ENCODER_AUTO && (encoder == v1::MLP) == frames) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.encoder ", v1::Encoder_Name(encoder), " does not fit ",
        frames ? "its frames; use NATURE_CNN or RESNET" : "its vector; use MLP",
        " or leave it out"));
  }
  if (config.has_dqn() && !discrete) {
    return absl::InvalidArgumentError(
        "dqn needs discrete actions, and this environment's are continuous; "
        "choose ppo");
  }
  return absl::OkStatus();
}

std::string PlayableWarning(const v1::EnvSpec& spec) {
  for (const v1::Leaf& leaf : spec.observation()) {
    if (leaf.dtype() != v1::UINT8 || leaf.shape_size() < 2 || IsFrames(spec)) {
      continue;
    }
    const int64_t values = NumElements(leaf);
    if (values < kLeastImage) continue;
    return absl::StrCat(
        "env \"", spec.env_id(), "\": the observation",
        leaf.path().empty() ? "" : absl::StrCat(" \"", leaf.path(), "\""),
        " is an image of UINT8 [", absl::StrJoin(leaf.shape(), ", "),
        "], which only a single one of [H, W] is seen as; its ", values,
        " values go into an MLP, one by one. Wrap the environment so that it "
        "observes nothing but gray frames [H, W] "
        "(gymnasium.wrappers.GrayscaleObservation, ResizeObservation)");
  }
  return "";
}

}  // namespace flotilla
