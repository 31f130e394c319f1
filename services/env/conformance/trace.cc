#include "services/env/conformance/trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

// The first leaf that differs; -1 if none does.
int OtherLeaf(const std::vector<size_t>& a, const std::vector<size_t>& b) {
  const size_t leaves = std::min(a.size(), b.size());
  for (size_t i = 0; i < leaves; ++i) {
    if (a[i] != b[i]) return static_cast<int>(i);
  }
  return a.size() == b.size() ? -1 : static_cast<int>(leaves);
}

std::string LeafWords(const v1::EnvSpec& spec, const char* what, int leaf) {
  return absl::StrCat(
      what, " leaf ", leaf, " (\"",
      leaf < spec.observation_size() ? spec.observation(leaf).path() : "",
      "\") differs");
}

std::string Difference(const v1::EnvSpec& spec, const RowStep& a,
                       const RowStep& b) {
  if (const int leaf = OtherLeaf(a.observation, b.observation); leaf >= 0) {
    return LeafWords(spec, "observation", leaf);
  }
  if (a.active != b.active) return "active differs";
  if (a.reward != b.reward) return "the reward differs";
  if (a.terminated != b.terminated) return "terminated differs";
  if (a.truncated != b.truncated) return "truncated differs";
  const int leaf = OtherLeaf(a.final_observation, b.final_observation);
  if (leaf >= 0) return LeafWords(spec, "final_observation", leaf);
  if (a.game_over != b.game_over) return "only one has an EpisodeEnd";
  if (a.raw_return != b.raw_return || a.length != b.length) {
    return absl::StrCat("EpisodeEnd differs: raw_return ", a.raw_return,
                        ", length ", a.length, " and raw_return ", b.raw_return,
                        ", length ", b.length);
  }
  return "";
}

struct Start {
  const RowStep* step = nullptr;
  size_t at = 0;
  bool whole = true;  // it follows a whole game
};

// Where a row's episodes begin, up to its first error.
std::vector<Start> Starts(const std::vector<RowStep>& row) {
  std::vector<Start> starts;
  bool whole = true;
  for (size_t t = 0; t < row.size() && !row[t].error; ++t) {
    whole = whole || row[t].game_over;
    if (t > 0 && !row[t].begins) continue;
    starts.push_back({&row[t], t, whole});
    whole = false;
  }
  return starts;
}

}  // namespace

std::string FirstDifference(const v1::EnvSpec& spec, const Trace& a,
                            const Trace& b) {
  for (size_t row = 0; row < std::min(a.size(), b.size()); ++row) {
    const size_t steps = std::min(a[row].size(), b[row].size());
    for (size_t t = 0; t < steps; ++t) {
      if (a[row][t].error || b[row][t].error) break;
      const std::string words = Difference(spec, a[row][t], b[row][t]);
      if (!words.empty()) {
        return absl::StrCat("row ", row, ", step ", t, ": ", words);
      }
    }
  }
  return "";
}

std::string FirstOtherStart(const v1::EnvSpec& spec, const Trace& a,
                            const Trace& b, int* compared) {
  *compared = 0;
  for (size_t row = 0; row < std::min(a.size(), b.size()); ++row) {
    const std::vector<Start> one = Starts(a[row]), two = Starts(b[row]);
    for (size_t e = 1; e < std::min(one.size(), two.size()); ++e) {
      if (!one[e].whole || !two[e].whole) continue;
      ++*compared;
      const int leaf =
          OtherLeaf(one[e].step->observation, two[e].step->observation);
      if (leaf < 0) continue;
      return absl::StrCat("row ", row, ", episode ", e, ": begun at step ",
                          one[e].at, " after some actions and at step ",
                          two[e].at, " after others, ",
                          LeafWords(spec, "observation", leaf));
    }
  }
  return "";
}

}  // namespace flotilla
