#include "launcher/run_comparison.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/config_docs.h"
#include "launcher/curve.h"
#include "launcher/numbers.h"
#include "services/base/config.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr int kPoints = 160;         // of a line
constexpr size_t kResamples = 2000;  // rliable's
constexpr size_t kManyRuns = 10;     // where outliers are to be expected

struct Member {
  RunRecord run;
  Curve curve;
  std::string group;
};

struct Group {
  std::string label;
  std::vector<const Member*> members;

  std::vector<double> ValuesAt(double x) const {
    std::vector<double> values;
    for (const Member* member : members) {
      values.push_back(ValueAt(member->curve, x));
    }
    return values;
  }
};

absl::Status Invalid(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

// The value of each of the fields that `group_by` names.
absl::StatusOr<std::string> GroupByFields(const RunRecord& run,
                                          const std::string& group_by) {
  std::vector<std::string> parts;
  for (const auto& piece : absl::StrSplit(group_by, ',', absl::SkipEmpty())) {
    const std::string path(piece);
    std::string value;
    if (path == "learners") {
      value = run.learners ? absl::StrCat(*run.learners) : "unknown";
    } else if (path == "algorithm") {
      value = AlgorithmName(run.config);
    } else {
      RETURN_IF_ERROR(FindConfigField(path).status());
      value = SettingOf(run.config, path);
      if (value.empty()) value = "unset";
    }
    parts.push_back(absl::StrCat(path, "=", value));
  }
  return absl::StrJoin(parts, " ");
}

// Fills in the name of each member's group.
absl::Status NameGroups(const std::string& group_by,
                        std::vector<Member>* members) {
  std::vector<RunRecord> runs;
  std::set<std::string> algorithms;
  for (const Member& member : *members) {
    runs.push_back(member.run);
    algorithms.insert(AlgorithmName(member.run.config));
  }
  const std::vector<RunDifferences> differences = FindDifferences(runs);
  for (size_t i = 0; i < members->size(); ++i) {
    Member& member = (*members)[i];
    if (group_by == "run") {
      member.group = member.run.path;
    } else if (group_by == "none") {
      member.group = "all runs";
    } else if (!group_by.empty()) {
      ASSIGN_OR_RETURN(member.group, GroupByFields(member.run, group_by));
    } else {
      const std::string algorithm = AlgorithmName(member.run.config);
      const std::string said = DescribeDifferences(differences[i]);
      member.group =
          said.empty() || algorithms.size() > 1
              ? absl::StrCat(algorithm, said.empty() ? "" : " ", said)
              : said;
    }
  }
  return absl::OkStatus();
}

// The runs that have something to show; what the others lack is noted.
absl::StatusOr<std::vector<Member>> ReadMembers(
    const std::vector<RunRecord>& runs, const ComparisonOptions& options,
    std::vector<std::string>* notes) {
  std::vector<Member> members;
  std::set<std::string> known;
  bool any_has_it = false;
  for (const RunRecord& run : runs) {
    if (!run.readable()) {
      notes->push_back(
          absl::StrCat(run.notes[0], ", and ", run.path, " is left out"));
      continue;
    }
    notes->insert(notes->end(), run.notes.begin(), run.notes.end());
    Curve curve = ReadCurve(RunFolder(run.path).metrics(), options.metric,
                            options.over_time ? "wall_seconds" : "global_step");
    known.insert(curve.other_names.begin(), curve.other_names.end());
    const size_t finite = curve.points.size();
    const bool has_it = finite > 0 || curve.not_finite > 0;
    any_has_it |= has_it;
    if (finite > 0 && curve.not_finite > 0) {
      notes->push_back(absl::StrCat(
          run.path, ": ", curve.not_finite, " of ", finite + curve.not_finite,
          " values of ", options.metric, " are not finite, and are left out"));
    } else if (finite == 0) {
      notes->push_back(absl::StrCat(
          run.path,
          has_it ? absl::StrCat(" has no finite value of ", options.metric)
          : curve.other_names.empty()
              ? std::string(" has no metrics yet")
              : absl::StrCat(" has no ", options.metric),
          ", and is left out"));
    }
    if (finite > 0) members.push_back({run, std::move(curve), ""});
  }
  if (!members.empty()) return members;
  if (!any_has_it && !known.empty()) {
    notes->clear();  // they would say it once more, for each run
    return Invalid(absl::StrCat(
        "there is no metric \"", options.metric, "\" in ",
        runs.size() == 1 ? runs[0].path
                         : absl::StrCat("any of the ", runs.size(), " runs"),
        DidYouMean(options.metric, {known.begin(), known.end()})));
  }
  const std::string why = notes->empty() ? "" : notes->back();
  return Invalid(runs.size() == 1
                     ? why.substr(0, why.rfind(", and "))
                     : absl::StrCat("there is nothing to plot in ", runs.size(),
                                    " runs", why.empty() ? "" : ": ", why));
}

std::vector<Group> GroupMembers(const std::vector<Member>& members) {
  std::vector<Group> groups;  // in the order of their first runs
  for (const Member& member : members) {
    auto group = std::find_if(
        groups.begin(), groups.end(),
        [&](const Group& known) { return known.label == member.group; });
    if (group == groups.end()) {
      groups.push_back({member.group, {}});
      group = groups.end() - 1;
    }
    group->members.push_back(&member);
  }
  return groups;
}

Aggregate Choose(const std::string& flag, const std::vector<Group>& groups) {
  const bool many = std::all_of(
      groups.begin(), groups.end(),
      [](const Group& group) { return group.members.size() >= kManyRuns; });
  return flag == "iqm" || (flag == "auto" && many) ? Aggregate::kIqm
                                                   : Aggregate::kMean;
}

Chart::Series SeriesOf(const Group& group, Aggregate aggregate,
                       const std::pair<std::string, double>& unit) {
  double first = group.members[0]->curve.points.front().first;
  double last = group.members[0]->curve.points.back().first;
  for (const Member* member : group.members) {
    // From where all have begun.
    first = std::max(first, member->curve.points.front().first);
    last = std::max(last, member->curve.points.back().first);
  }
  const size_t runs = group.members.size();
  Chart::Series series;
  series.label =
      absl::StrCat(group.label, " (", runs, runs == 1 ? " run)" : " runs)");
  const auto resamples = Resamples(runs, runs > 1 ? kResamples : 1);
  const int points = last > first ? kPoints : 1;
  for (int i = 0; i < points; ++i) {
    const double x =
        i + 1 == points ? last : first + (last - first) * i / (points - 1);
    const std::vector<double> values = group.ValuesAt(x);
    const Interval interval = BootstrapInterval(values, aggregate, resamples);
    series.points.push_back({x / unit.second, AggregateOf(values, aggregate),
                             interval.low, interval.high});
  }
  return series;
}

// What time is counted in, and its seconds; of steps 1.
std::pair<std::string, double> UnitOf(const std::vector<Member>& members,
                                      bool over_time) {
  if (!over_time) return {"environment steps", 1};
  double longest = 0;
  for (const Member& member : members) {
    longest = std::max(longest, member.curve.points.back().first);
  }
  if (longest > 2 * 3600) return {"wall time (hours)", 3600};
  if (longest > 2 * 60) return {"wall time (minutes)", 60};
  return {"wall time (seconds)", 1};
}

std::string Number(double value) { return absl::StrFormat("%.5g", value); }

std::string TableOf(const std::vector<Group>& groups,
                    const std::string& metric) {
  std::string table = absl::StrCat(
      "| final ", metric,
      " | runs | mean | 95 % interval | IQM | lowest | highest | steps | time "
      "|\n| --- | --: | --: | --: | --: | --: | --: | --: | --: |\n");
  for (const Group& group : groups) {
    std::vector<double> values;
    int64_t steps = 0;
    double seconds = 0;
    for (const Member* member : group.members) {
      values.push_back(member->curve.points.back().second);
      steps += member->run.steps.value_or(0);
      seconds += member->run.wall_seconds.value_or(0);
    }
    const size_t runs = values.size();
    const Interval interval = BootstrapInterval(values, Aggregate::kMean,
                                                Resamples(runs, kResamples));
    const auto [lowest, highest] =
        std::minmax_element(values.begin(), values.end());
    absl::StrAppend(
        &table, "| ", absl::StrReplaceAll(group.label, {{"|", "\\|"}}), " | ",
        runs, " | ", Number(AggregateOf(values, Aggregate::kMean)), " | ",
        runs == 1
            ? std::string("one run")
            : absl::StrCat(Number(interval.low), " to ", Number(interval.high)),
        " | ", Number(AggregateOf(values, Aggregate::kIqm)), " | ",
        Number(*lowest), " | ", Number(*highest), " | ",
        WithCommas(steps / static_cast<int64_t>(runs)), " | ",
        BriefSeconds(seconds / static_cast<double>(runs)), " |\n");
  }
  return table;
}

// Of runs that count on with their last value for a tenth of the line or more.
void NoteEarlyEnds(const std::vector<Group>& groups, bool over_time,
                   std::vector<std::string>* notes) {
  if (over_time) return;  // no two runs take equally long
  for (const Group& group : groups) {
    double last = 0;
    for (const Member* member : group.members) {
      last = std::max(last, member->curve.points.back().first);
    }
    for (const Member* member : group.members) {
      const double end = member->curve.points.back().first;
      if (end >= 0.9 * last) continue;
      notes->push_back(absl::StrCat(
          member->run.path, " is ", member->run.status, " at ",
          WithCommas(static_cast<int64_t>(end)), " of its group's ",
          WithCommas(static_cast<int64_t>(last)),
          " steps, and counts on with its last value"));
    }
  }
}

// Resamples of few values vary less than such values do: how much less, statistics_test.cc
// shows of normal ones.
void NoteFewRuns(const std::vector<Group>& groups,
                 std::vector<std::string>* notes) {
  constexpr size_t kEnough = 10;
  size_t fewest = kEnough;
  for (const Group& group : groups) {
    const size_t runs = group.members.size();
    if (runs > 1) fewest = std::min(fewest, runs);
  }
  if (fewest == kEnough) return;
  notes->push_back(absl::StrCat(
      "a 95 % bootstrap interval of ", fewest,
      " runs is too narrow (of 3 it holds the mean in 75 % of cases, of 10 in "
      "90): groups whose intervals are apart may differ by chance"));
}

}  // namespace

absl::Status CheckOneEnvironment(const std::vector<RunRecord>& runs) {
  const RunRecord* first = nullptr;
  for (const RunRecord& run : runs) {
    if (!run.readable()) continue;
    if (first == nullptr) first = &run;
    const std::string& of_first = first->config.env().id();
    if (run.config.env().id() == of_first) continue;
    return Invalid(absl::StrCat(first->path, " is of ", of_first, " and ",
                                run.path, " of ", run.config.env().id(),
                                "; one picture compares runs of one "
                                "environment: look at them apart"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Comparison> CompareRuns(const std::vector<RunRecord>& runs,
                                       const ComparisonOptions& options) {
  RETURN_IF_ERROR(CheckOneEnvironment(runs));
  Comparison comparison;
  ASSIGN_OR_RETURN(std::vector<Member> members,
                   ReadMembers(runs, options, &comparison.notes));
  RETURN_IF_ERROR(NameGroups(options.group_by, &members));
  const std::vector<Group> groups = GroupMembers(members);
  const Aggregate aggregate = Choose(options.aggregate, groups);
  const auto unit = UnitOf(members, options.over_time);
  Chart& chart = comparison.chart;
  chart.title =
      absl::StrCat(options.metric, " on ", members[0].run.config.env().id());
  chart.caption =
      absl::StrCat(aggregate == Aggregate::kIqm ? "Interquartile mean" : "Mean",
                   " of a group's runs, and its 95 % bootstrap interval");
  chart.x_label = unit.first;
  chart.y_label = options.metric;
  for (const Group& group : groups) {
    chart.series.push_back(SeriesOf(group, aggregate, unit));
  }
  comparison.table = TableOf(groups, options.metric);
  NoteEarlyEnds(groups, options.over_time, &comparison.notes);
  NoteFewRuns(groups, &comparison.notes);
  return comparison;
}

}  // namespace flotilla
