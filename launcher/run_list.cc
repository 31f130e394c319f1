#include "launcher/run_list.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "launcher/numbers.h"
#include "launcher/text_layout.h"
#include "services/base/config.h"
#include "services/base/json.h"

namespace flotilla {
namespace {

// What is highest comes first.
double RankOf(const RunRecord& run, const std::string& order) {
  constexpr double kLast = -std::numeric_limits<double>::infinity();
  if (order == "score") return run.score().value_or(kLast);
  if (order == "time") return run.wall_seconds.value_or(kLast);
  if (order == "newest")
    return absl::ToDoubleSeconds(run.started - absl::UnixEpoch());
  return run.steps ? static_cast<double>(*run.steps) : kLast;
}

std::string Return(const std::optional<double>& value) {
  return value ? absl::StrFormat("%.1f", *value) : "";
}

bool HasEnded(const RunRecord& run) {
  return run.status_from == "summary.json";
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

void SortRuns(const std::string& order, std::vector<RunRecord>* runs) {
  std::stable_sort(runs->begin(), runs->end(),
                   [&](const RunRecord& a, const RunRecord& b) {
                     if (order == "name") return a.path < b.path;
                     return RankOf(a, order) > RankOf(b, order);
                   });
}

std::string RunTable(const std::vector<RunRecord>& runs, size_t width) {
  std::vector<std::vector<std::string>> rows = {
      {"run", "status", "configuration", "seed", "eval", "return", "steps",
       "time", "differs by"}};
  const std::vector<RunDifferences> differences = FindDifferences(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunRecord& run = runs[i];
    const std::string named = run.config_name.empty() && run.readable()
                                  ? absl::StrCat(AlgorithmName(run.config),
                                                 " on ", run.config.env().id())
                                  : run.config_name;
    rows.push_back({run.path, run.status, named,
                    run.readable() ? absl::StrCat(run.config.seed()) : "",
                    Return(run.eval_return), Return(run.mean_return),
                    run.steps ? WithCommas(*run.steps) : "",
                    run.wall_seconds ? BriefSeconds(*run.wall_seconds) : "",
                    DescribeDifferences(differences[i])});
  }
  std::string text;
  const std::vector<std::string> lines = absl::StrSplit(
      Table(std::move(rows), {3, 4, 5, 6, 7}), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const bool cut = width > 3 && Characters(line) > width;
    absl::StrAppend(&text, cut ? Cut(line, width - 3) : line,
                    cut ? "...\n" : "\n");
  }
  for (const RunRecord& run : runs) {
    if (HasEnded(run) || !run.readable()) continue;
    absl::StrAppend(&text, run.path, " is ", run.status, ": ", run.status_from,
                    "\n");
  }
  return text;
}

std::string RunsAsJson(const std::vector<RunRecord>& runs) {
  Json list = Json::array();
  const std::vector<RunDifferences> differences = FindDifferences(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunRecord& run = runs[i];
    Json object = {{"run", run.path},
                   {"status", run.status},
                   {"status_from", run.status_from}};
    if (run.readable()) {
      object["configuration"] = run.config_name;
      object["env_id"] = run.config.env().id();
      object["algorithm"] = AlgorithmName(run.config);
      object["seed"] = run.config.seed();
    }
    object["learners"] = OrNull(run.learners);
    object["score"] = OrNull(run.score());
    object["eval_mean_return"] = OrNull(run.eval_return);
    object["mean_return"] = OrNull(run.mean_return);
    object["global_steps"] = OrNull(run.steps);
    object["wall_seconds"] = OrNull(run.wall_seconds);
    object["differs"] = Json::object();
    for (const auto& [path, value] : differences[i]) {
      object["differs"][path] = value;
    }
    object["notes"] = run.notes;
    list.push_back(std::move(object));
  }
  return FormatJson(list, /*indent=*/2) + "\n";
}

}  // namespace flotilla
