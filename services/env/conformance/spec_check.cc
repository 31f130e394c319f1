#include "services/env/conformance/spec_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/json.h"
#include "services/env/conformance/action_draw.h"
#include "services/env/group_layout.h"

namespace flotilla {
namespace {

using Leaves = google::protobuf::RepeatedPtrField<v1::Leaf>;

constexpr int64_t kMaxRowBytes = int64_t{1} << 26;
constexpr int64_t kMaxValues = int64_t{1} << 31;  // of an element
constexpr int kMaxMetrics = 64;

int64_t ItemBytes(v1::DType dtype) {
  switch (dtype) {
    case v1::UINT8:
      return 1;
    case v1::FLOAT32:
      return 4;
    case v1::INT64:
      return 8;
    default:
      return 0;
  }
}

std::string LeafName(const char* kind, int index, const v1::Leaf& leaf) {
  return absl::StrCat("spec.", kind, "[", index, "] (\"", leaf.path(), "\")");
}

void CheckSorted(const char* kind, const Leaves& leaves, Findings* findings) {
  findings->Ok(Sentence::kLeavesSorted);
  for (int i = 1; i < leaves.size(); ++i) {
    if (leaves[i - 1].path() < leaves[i].path()) continue;
    findings->Fail(Sentence::kLeavesSorted,
                   absl::StrCat(LeafName(kind, i, leaves[i]), " comes after \"",
                                leaves[i - 1].path(),
                                "\", want paths ascending and distinct"));
  }
}

// Whether its arrays have a size at all.
bool CheckShape(const std::string& name, const v1::Leaf& leaf,
                Findings* findings) {
  findings->Ok(Sentence::kLeafShapes);
  int64_t bytes = ItemBytes(leaf.dtype());
  if (bytes == 0) {
    findings->Fail(Sentence::kLeafShapes,
                   absl::StrCat(name, ".dtype is ", leaf.dtype(),
                                ", want UINT8, INT64 or FLOAT32"));
    return false;
  }
  for (const int64_t dim : leaf.shape()) {
    if (dim < 1) {
      findings->Fail(Sentence::kLeafShapes,
                     absl::StrCat(name, ".shape has a dimension of ", dim,
                                  ", want 1 or more"));
      return false;
    }
    if (dim > kMaxRowBytes / bytes) {
      findings->Fail(Sentence::kLeafShapes,
                     absl::StrCat(name, " has more than ", kMaxRowBytes,
                                  " bytes a row, which fit into no message"));
      return false;
    }
    bytes *= dim;
  }
  return true;
}

bool CheckDiscrete(const std::string& name, const v1::Leaf& leaf,
                   Findings* findings) {
  const int each = leaf.num_values_each_size();
  if (each == 0 && leaf.num_values() == 0) return true;
  findings->Ok(Sentence::kLeafValues);
  const auto fail = [&](const std::string& words) {
    findings->Fail(Sentence::kLeafValues, absl::StrCat(name, words));
    return false;
  };
  if (leaf.dtype() == v1::FLOAT32) {
    return fail(" has num_values and is FLOAT32, want UINT8 or INT64");
  }
  if (each > 0 && each != Elements(leaf)) {
    return fail(absl::StrCat(".num_values_each has ", each,
                             " numbers, want one for each of ", Elements(leaf),
                             " elements"));
  }
  const int64_t most = leaf.dtype() == v1::UINT8 ? 256 : kMaxValues;
  const auto bad = [&](int64_t values) { return values < 1 || values > most; };
  if (each == 0 && bad(leaf.num_values())) {
    return fail(absl::StrCat(".num_values is ", leaf.num_values(),
                             ", want 1 to ", most, ", or 0 if continuous"));
  }
  for (const int64_t values : leaf.num_values_each()) {
    if (bad(values)) {
      return fail(absl::StrCat(".num_values_each has a ", values,
                               ", want 1 to ", most));
    }
  }
  return true;
}

bool CheckBounds(const std::string& name, const v1::Leaf& leaf,
                 Findings* findings) {
  if (leaf.low_size() == 0 && leaf.high_size() == 0) return true;
  findings->Ok(Sentence::kLeafBounds);
  const auto fail = [&](const std::string& words) {
    findings->Fail(Sentence::kLeafBounds, absl::StrCat(name, words));
    return false;
  };
  const int64_t elements = Elements(leaf);
  for (const auto& [field, size] : {std::pair("low", leaf.low_size()),
                                    std::pair("high", leaf.high_size())}) {
    if (size <= 1 || size == elements) continue;
    return fail(absl::StrCat(".", field, " has ", size,
                             " numbers, want one, or one for each of ",
                             elements, " elements"));
  }
  for (int64_t i = 0; i < std::max(leaf.low_size(), leaf.high_size()); ++i) {
    const float low = LowOf(leaf, i), high = HighOf(leaf, i);
    // NaN is in no order.
    if (low <= high) continue;
    return fail(absl::StrCat(": element ", i, " is bounded by ", low, " and ",
                             high, ", want numbers, low at most high"));
  }
  return true;
}

void CheckMask(const v1::EnvSpec& spec, int index, Findings* findings) {
  const std::string& path = MaskPathOf(spec, index);
  if (path.empty()) return;
  const v1::Leaf& action = spec.action(index);
  const std::string name = LeafName("action", index, action);
  if (MaskLeafOf(spec, index) >= 0) {
    findings->Ok(Sentence::kMaskPath);
    return;
  }
  findings->Fail(
      Sentence::kMaskPath,
      AllValues(action) == 0
          ? absl::StrCat(name, " has mask_path \"", path,
                         "\", and is not discrete")
          : absl::StrCat(name, " has mask_path \"", path,
                         "\", want the path of a UINT8 observation leaf of ",
                         AllValues(action),
                         " elements, one for each of its values"));
}

void CheckMasks(const v1::EnvSpec& spec, Findings* findings) {
  for (int i = 0; i < spec.action_size(); ++i) CheckMask(spec, i, findings);
  const std::string& old = spec.action_mask_path();
  if (old.empty()) return;
  if (spec.action_size() != 1) {
    findings->Fail(Sentence::kMaskPath,
                   absl::StrCat("spec.action_mask_path is \"", old,
                                "\" and there are ", spec.action_size(),
                                " action leaves, want it of the only one"));
  } else if (!spec.action(0).mask_path().empty() &&
             spec.action(0).mask_path() != old) {
    findings->Fail(
        Sentence::kMaskPath,
        absl::StrCat("spec.action_mask_path is \"", old,
                     "\" and the action's mask_path \"",
                     spec.action(0).mask_path(), "\", want the same"));
  }
}

void CheckMetrics(const v1::EnvSpec& spec, Findings* findings) {
  const auto& names = spec.episode_metric();
  if (names.empty()) return;
  findings->Ok(Sentence::kEpisodeMetric);
  if (names.size() > kMaxMetrics) {
    findings->Fail(Sentence::kEpisodeMetric,
                   absl::StrCat("spec.episode_metric has ", names.size(),
                                " names; learners take ", kMaxMetrics));
  }
  for (int i = 0; i < names.size(); ++i) {
    if (names[i].empty()) {
      findings->Fail(Sentence::kEpisodeMetric,
                     absl::StrCat("spec.episode_metric[", i, "] is empty"));
    }
    if (i > 0 && names[i - 1] >= names[i]) {
      findings->Fail(
          Sentence::kEpisodeMetric,
          absl::StrCat("spec.episode_metric has \"", names[i], "\" after \"",
                       names[i - 1], "\", want names ascending and distinct"));
    }
  }
}

void CheckOptions(const v1::EnvSpec& spec, Findings* findings) {
  for (int i = 0; i < spec.option_size(); ++i) {
    const v1::EnvOption& option = spec.option(i);
    findings->Ok(Sentence::kOptionsSorted);
    if (i > 0 && spec.option(i - 1).name() >= option.name()) {
      findings->Fail(Sentence::kOptionsSorted,
                     absl::StrCat("spec.option has \"", option.name(),
                                  "\" after \"", spec.option(i - 1).name(),
                                  "\", want names ascending and distinct"));
    }
    if (!ParseJson(option.default_json()).ok()) {
      findings->Fail(Sentence::kOptionsSorted,
                     absl::StrCat("spec.option[", i, "] (\"", option.name(),
                                  "\").default_json is ", option.default_json(),
                                  ", want a JSON value"));
    }
  }
}

void CheckLimits(const v1::EnvSpec& spec, Findings* findings) {
  findings->Ok(Sentence::kSpecLimits);
  if (spec.max_episode_steps() < 0) {
    findings->Fail(Sentence::kSpecLimits,
                   absl::StrCat("spec.max_episode_steps is ",
                                spec.max_episode_steps(), ", want 0 or more"));
  }
  findings->Ok(Sentence::kAgents);
  if (!AgentsOf(spec).ok()) {
    findings->Fail(Sentence::kAgents, AgentsOf(spec).status().message());
  }
  for (const v1::Leaf& leaf : spec.observation()) {
    if (leaf.frame_stack() >= 0 && leaf.frame_stack() <= 1024) continue;
    findings->Fail(Sentence::kSpecLimits,
                   absl::StrCat("leaf \"", leaf.path(), "\" has frame_stack ",
                                leaf.frame_stack(), ", want 0 to 1024"));
  }
}

}  // namespace

bool CheckSpec(const v1::EnvSpec& spec, Findings* findings) {
  bool readable = true;
  for (const auto& [kind, leaves] :
       {std::pair("observation", &spec.observation()),
        std::pair("action", &spec.action())}) {
    if (leaves->empty()) {
      findings->Fail(Sentence::kLeafShapes,
                     absl::StrCat("spec.", kind, " is empty, want a leaf"));
      readable = false;
    }
    CheckSorted(kind, *leaves, findings);
    for (int i = 0; i < leaves->size(); ++i) {
      const v1::Leaf& leaf = (*leaves)[i];
      const std::string name = LeafName(kind, i, leaf);
      if (!CheckShape(name, leaf, findings)) {
        readable = false;
        continue;
      }
      if (!CheckDiscrete(name, leaf, findings)) readable = false;
      if (!CheckBounds(name, leaf, findings)) readable = false;
    }
  }
  CheckMetrics(spec, findings);
  CheckOptions(spec, findings);
  CheckLimits(spec, findings);
  if (readable) CheckMasks(spec, findings);
  return readable && AgentsOf(spec).ok();
}

}  // namespace flotilla
