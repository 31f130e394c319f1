#include "launcher/summary.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/numbers.h"
#include "services/base/config.h"
#include "services/base/json.h"
#include "services/base/version.h"

namespace flotilla {
namespace {

constexpr std::streamoff kBlock = 1 << 20;  // of metrics read at once

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

// What people are told of a failure, without the end of a log that may be among
// it ("  | I20261122 13:51:57 ..."), and without what a log writes before a line.
std::string InOneLine(const std::string& failure) {
  static const auto& prefix =
      *new std::regex("^[IWEF][0-9]{8} [0-9:.]+ +[0-9]+ [^\\]]*\\] ");
  std::vector<std::string> lines;
  for (const auto& line : absl::StrSplit(failure, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "  | ")) continue;
    lines.push_back(std::regex_replace(std::string(line), prefix, ""));
  }
  return absl::StrJoin(lines, "; ");
}

std::optional<double> Find(const NewestMetrics& metrics,
                           const std::string& name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? std::nullopt : std::optional(found->second);
}

// What the coordinator knew last.
void TakeStatus(const v1::Status& last, v1::RunSummary* summary) {
  summary->set_world_size(last.world_size());
  summary->set_global_steps(last.global_step());
  summary->set_updates(last.update());
  summary->mutable_restarts()->set_learner(last.learner_restarts());
  summary->mutable_restarts()->set_env_worker(last.env_worker_restarts());
  summary->set_failed_rows(last.failed_rows());
  if (!last.started_over().empty()) {
    summary->set_started_over(last.started_over());
  }
}

// How far the run came: metrics may be newer than the status, or older where
// they are written now and then.
void TakeProgress(const NewestMetrics& metrics, v1::RunSummary* summary) {
  const auto update = Find(metrics, "update");
  const auto global_step = Find(metrics, "global_step");
  const auto seconds = Find(metrics, "wall_seconds");
  if (update && global_step && *update >= summary->updates()) {
    summary->set_updates(static_cast<int64_t>(*update));
    summary->set_global_steps(static_cast<int64_t>(*global_step));
  }
  if (summary->has_updates()) summary->set_stop_update(summary->updates());
  if (seconds) summary->set_wall_seconds(*seconds);
  if (seconds && global_step && *seconds > 0) {
    summary->set_steps_per_second(*global_step / *seconds);
  }
}

// What rank 0 leaves out of the summary of a failure too.
void TakeReturns(const v1::RunConfig& config,
                 const std::optional<v1::Status>& last,
                 const NewestMetrics& metrics, v1::RunSummary* summary) {
  const auto episodes = Find(metrics, "charts/episodes");
  const auto mean_return = Find(metrics, "charts/episodic_return");
  if (episodes && !summary->has_episodes()) {
    summary->set_episodes(static_cast<int64_t>(*episodes));
  }
  if (mean_return && !summary->has_mean_return() && summary->episodes() > 0) {
    summary->set_mean_return(*mean_return);
    summary->set_mean_return_episodes(std::min<int64_t>(
        summary->episodes(), config.metrics().episode_window()));
  }
  if (!last || !last->has_evaluation() || summary->has_eval_mean_return()) {
    return;
  }
  const v1::Evaluation& evaluation = last->evaluation();
  if (evaluation.round() == 0) return;
  summary->set_eval_mean_return(evaluation.mean_return());
  summary->set_eval_episodes(evaluation.episodes());
  summary->set_eval_update(evaluation.update());
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
  for (const v1::RunSummary::Change& change : summary.change()) {
    lines.push_back(
        absl::StrCat("changed in flight: ", absl::StrJoin(change.set(), " "),
                     ", from update ", change.update(), " on"));
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

NewestMetrics ReadNewestMetrics(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? std::streamoff(file.tellg()) : 0;
  file.seekg(std::max<std::streamoff>(0, size - kBlock));
  NewestMetrics newest;
  for (std::string line; std::getline(file, line);) {
    const auto json = ParseJson(line);
    if (!json.ok() || !json->is_object()) continue;
    for (const auto& [name, value] : json->items()) {
      if (value.is_number()) newest[name] = value.get<double>();
    }
  }
  return newest;
}

std::optional<double> FindNewestMetric(const std::string& path,
                                       const std::string& name,
                                       int64_t look_back) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::string key = absl::StrCat("\"", name, "\"");
  std::string later;  // the rest of the line that a block ends in
  const std::streamoff size = file ? std::streamoff(file.tellg()) : 0;
  const std::streamoff least = std::max<std::streamoff>(0, size - look_back);
  for (std::streamoff end = size; end > least;) {
    const std::streamoff begin = std::max(least, end - kBlock);
    std::string block(end - begin, '\0');
    file.seekg(begin);
    if (!file.read(block.data(), end - begin)) break;
    block += later;
    end = begin;
    // Its first line may have begun before.
    const size_t first = begin == 0 ? 0 : block.find('\n');
    const size_t whole = first == block.npos ? block.size() : first;
    for (size_t at = block.rfind(key); at != block.npos && at >= whole;) {
      const size_t from = block.rfind('\n', at) + 1;  // npos + 1 is 0
      const auto json =
          ParseJson(block.substr(from, block.find('\n', at) - from));
      if (json.ok() && json->is_object() && json->contains(name) &&
          json->at(name).is_number()) {
        return json->at(name).get<double>();
      }
      at = from == 0 ? block.npos : block.rfind(key, from - 1);
    }
    // Nobody has written a line that is longer than a block.
    later = whole > kBlock ? "" : block.substr(0, whole);
  }
  return std::nullopt;
}

v1::RunSummary SummarizeFailure(const v1::RunConfig& config,
                                const std::optional<v1::RunSummary>& written,
                                const std::optional<v1::Status>& last,
                                const NewestMetrics& metrics,
                                const std::string& failure) {
  v1::RunSummary summary = written.value_or(v1::RunSummary());
  if (!written) {
    summary.set_env_id(config.env().id());
    summary.set_algorithm(AlgorithmName(config));
    summary.set_seed(config.seed());
    summary.set_version(Version());
    if (last) TakeStatus(*last, &summary);
    TakeProgress(metrics, &summary);
  }
  TakeReturns(config, last, metrics, &summary);
  summary.set_status(v1::RunSummary::FAILED);
  if (!summary.has_error()) summary.set_error(InOneLine(failure));
  return summary;
}

}  // namespace flotilla
