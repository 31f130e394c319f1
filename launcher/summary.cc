#include "launcher/summary.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/numbers.h"
#include "services/base/config.h"
#include "services/base/version.h"

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
  if (!summary.started_over().empty()) {
    lines.push_back(summary.started_over());
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

v1::RunSummary SummarizeFailure(const v1::RunConfig& config,
                                const std::optional<v1::RunSummary>& written,
                                const std::optional<v1::Status>& last,
                                const std::string& failure) {
  v1::RunSummary summary = written.value_or(v1::RunSummary());
  if (!written) {
    summary.set_env_id(config.env().id());
    summary.set_algorithm(AlgorithmName(config));
    summary.set_seed(config.seed());
    summary.set_version(Version());
  }
  if (!written && last) {
    summary.set_world_size(last->world_size());
    summary.set_global_steps(last->global_step());
    summary.set_updates(last->update());
    summary.mutable_restarts()->set_learner(last->learner_restarts());
    summary.mutable_restarts()->set_env_worker(last->env_worker_restarts());
    if (!last->started_over().empty()) {
      summary.set_started_over(last->started_over());
    }
  }
  summary.set_status(v1::RunSummary::FAILED);
  if (!summary.has_error()) summary.set_error(failure);
  return summary;
}

}  // namespace flotilla
