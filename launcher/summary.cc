#include "launcher/summary.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/numbers.h"

namespace flotilla {
namespace {

// "212,992 steps, 52 updates, 35.2 s, 6,050 steps/s, world of 2"
std::string DescribeSize(const v1::RunSummary& summary) {
  std::vector<std::string> parts;
  if (summary.has_global_steps()) {
    parts.push_back(absl::StrCat(WithCommas(summary.global_steps()), " steps"));
  }
  if (summary.has_updates()) {
    parts.push_back(absl::StrCat(WithCommas(summary.updates()), " updates"));
  }
  if (summary.has_wall_seconds()) {
    parts.push_back(absl::StrFormat("%.1f s", summary.wall_seconds()));
  }
  if (summary.has_steps_per_second()) {
    parts.push_back(absl::StrCat(
        WithCommas(static_cast<int64_t>(summary.steps_per_second())),
        " steps/s"));
  }
  if (summary.has_world_size()) {
    parts.push_back(absl::StrCat("world of ", summary.world_size()));
  }
  return absl::StrJoin(parts, ", ");
}

// "parameters equal on all 2 ranks (sha256 1a2b3c4d5e6f)", or that they differ.
std::string DescribeParameters(const v1::RunSummary& summary) {
  const auto& digests = summary.parameters_sha256();
  if (digests.size() < 2) return "";
  const std::set<std::string> distinct(digests.begin(), digests.end());
  if (distinct.size() > 1) {
    return absl::StrCat("parameters DIFFER between the ", digests.size(),
                        " ranks");
  }
  return absl::StrCat("parameters equal on all ", digests.size(),
                      " ranks (sha256 ", distinct.begin()->substr(0, 12), ")");
}

std::string Count(int64_t count, const std::string& what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

std::string DescribeSummary(const v1::RunSummary& summary) {
  std::vector<std::string> lines;
  if (summary.has_eval_mean_return()) {
    lines.push_back(
        absl::StrFormat("evaluation return %.1f", summary.eval_mean_return()));
  }
  if (summary.has_mean_return()) {
    lines.push_back(absl::StrFormat(
        "training return %.1f (%s)", summary.mean_return(),
        summary.has_mean_return_episodes() &&
                summary.mean_return_episodes() < summary.episodes()
            ? absl::StrCat("last ", summary.mean_return_episodes(), " of ",
                           WithCommas(summary.episodes()), " episodes")
            : Count(summary.episodes(), "episode")));
  }
  if (const std::string size = DescribeSize(summary); !size.empty()) {
    lines.push_back(size);
  }
  const v1::RunSummary::Restarts& restarts = summary.restarts();
  if (restarts.learner() > 0 || restarts.env_worker() > 0) {
    lines.push_back(
        absl::StrCat("restarts: ", Count(restarts.learner(), "learner"), ", ",
                     Count(restarts.env_worker(), "env worker")));
  }
  if (const std::string equal = DescribeParameters(summary); !equal.empty()) {
    lines.push_back(equal);
  }
  if (!summary.error().empty()) {
    lines.push_back(absl::StrCat("error: ", summary.error()));
  }
  std::string text = absl::StrCat(
      absl::AsciiStrToLower(v1::RunSummary::Status_Name(summary.status())),
      ": ", summary.algorithm(), " on ", summary.env_id(), "\n");
  for (const std::string& line : lines) {
    absl::StrAppend(&text, "  ", line, "\n");
  }
  return text;
}

}  // namespace flotilla
