#include "services/env/playable.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/status_macros.h"
#include "services/env/encoder_plan.h"
#include "services/env/group_layout.h"
#include "services/env/spaces.h"

namespace flotilla {
namespace {

// Values from which on a UINT8 array of two dimensions or more is an image.
constexpr int64_t kLeastImage = 256;

}  // namespace

absl::Status CheckPlayable(const v1::RunConfig& config,
                           const v1::EnvSpec& spec) {
  RETURN_IF_ERROR(
      MakeGroupLayout(spec, /*num_envs=*/1, /*num_groups=*/1).status());
  ASSIGN_OR_RETURN(const Spaces spaces, DescribeSpaces(spec, config.model()));
  RETURN_IF_ERROR(PlanEncoders(spaces, config.model()).status());
  const std::string problem =
      ActionsProblem(TraitsOf(config), spaces.action.choices() > 0,
                     spaces.action.continuous > 0);
  return problem.empty() ? absl::OkStatus()
                         : absl::InvalidArgumentError(problem);
}

std::string PlayableWarning(const v1::RunConfig& config,
                            const v1::EnvSpec& spec) {
  const absl::StatusOr<Spaces> spaces = DescribeSpaces(spec, config.model());
  if (!spaces.ok()) return "";
  for (const LeafSpec& seen : spaces->observation) {
    if (seen.kind != LeafKind::kVector) continue;
    for (const LeafSpec::Part& part : seen.parts) {
      const v1::Leaf& leaf = spec.observation(part.leaf);
      if (leaf.dtype() != v1::UINT8 || leaf.shape_size() < 2 ||
          leaf.num_values() > 0 || leaf.num_values_each_size() > 0 ||
          part.elements < kLeastImage) {
        continue;
      }
      return absl::StrCat(
          "env \"", spec.env_id(), "\": the observation",
          leaf.path().empty() ? "" : absl::StrCat(" \"", leaf.path(), "\""),
          " is UINT8 [", absl::StrJoin(leaf.shape(), ", "), "], and its ",
          part.elements,
          " values go into an MLP, one by one. If it is an image, say so: "
          "--set 'model.leaf={path: \"",
          leaf.path(), "\" encoder: RESNET}'");
    }
  }
  return "";
}

}  // namespace flotilla
