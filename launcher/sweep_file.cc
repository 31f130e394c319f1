#include "launcher/sweep_file.h"

#include <google/protobuf/text_format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "flotilla/v1/summary.pb.h"
#include "flotilla/v1/sweep.pb.h"
#include "launcher/config_docs.h"
#include "launcher/config_finder.h"
#include "services/base/config.h"
#include "services/base/config_ranges.h"
#include "services/base/config_rules.h"
#include "services/base/config_text.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

constexpr int64_t kMostPoints = 10000;
constexpr int64_t kMostTrials = 100000;

// What metrics.jsonl has numbers of.
constexpr const char* kMetricGroups[] = {
    "agents", "charts", "env",     "eval",     "losses", "metrics", "perf",
    "policy", "replay", "rollout", "selfplay", "sync",   "system"};

// A parameter, as JSON has it: {"field", "kind", "low", "high", "step", "values"};
// "values" are those of a grid or a choice.
struct Parameter {
  std::string where;  // "sweep.textproto:3:1: parameter ppo.epochs"
  std::string field;
  std::string kind;
  double low = 0, high = 0;
  int64_t int_low = 0, int_high = 0, step = 1;
  std::vector<std::string> values;
  // What is checked of it: its ends, or all of `values`.
  std::vector<std::string> probes;
};

absl::Status Invalid(const std::string& where, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", message));
}

// As --set takes it, and as short as reads back the same.
std::string NumberText(double value) { return Json(value).dump(); }

class Reader {
 public:
  Reader(std::string path, std::string base, const SweepMachine& machine)
      : path_(std::move(path)), base_(std::move(base)), machine_(machine) {}

  absl::StatusOr<Json> Read() {
    const auto text = WholeFile(path_);
    if (!text) {
      return absl::NotFoundError(absl::StrCat(
          "there is no sweep file ", path_,
          "; expected a file of proto/flotilla/v1/sweep.proto, or the folder "
          "of a sweep that has begun"));
    }
    RETURN_IF_ERROR(ParseConfigText(*text, path_, &sweep_, &locations_));
    std::vector<ConfigProblem> problems;
    FindOutOfRange(sweep_, &problems);
    for (const ConfigProblem& problem : problems) {
      return Invalid(path_, absl::StrCat(problem.path, " ", problem.message));
    }
    RETURN_IF_ERROR(FindBase());
    RETURN_IF_ERROR(CheckBudget());
    RETURN_IF_ERROR(LoadBase());
    RETURN_IF_ERROR(CheckMethod());
    RETURN_IF_ERROR(ReadParameters());
    RETURN_IF_ERROR(CheckPopulation());
    RETURN_IF_ERROR(CheckMetric());
    RETURN_IF_ERROR(CheckPlacement());
    RETURN_IF_ERROR(CheckGrid());
    return AsJson(*text);
  }

 private:
  // "sweep.textproto:3:1"; without a place, of what is not there.
  std::string At(const std::string& name, int index = -1) const {
    const FieldDescriptor* field =
        v1::Sweep::descriptor()->FindFieldByName(name);
    const auto place = locations_.GetLocation(field, index);
    if (place.line < 0) return path_;
    return absl::StrCat(path_, ":", place.line + 1, ":", place.column + 1);
  }

  absl::Status FindBase() {
    if (sweep_.base().empty()) {
      return Invalid(path_,
                     "base is not set; expected a name that `flotilla configs` "
                     "lists, or a file");
    }
    if (!base_.empty()) return absl::OkStatus();
    auto found = FindConfig(sweep_.base());
    if (!found.ok()) {
      return Invalid(At("base"),
                     absl::StrCat("base: ", found.status().message()));
    }
    base_ = *std::move(found);
    return absl::OkStatus();
  }

  absl::Status CheckBudget() {
    const v1::SweepBudget& budget = sweep_.budget();
    if (budget.has_steps() && budget.has_updates()) {
      return Invalid(At("budget"),
                     "budget has steps and updates; expected one of them");
    }
    overrides_ = {sweep_.set().begin(), sweep_.set().end()};
    if (budget.has_steps()) {
      overrides_.push_back(absl::StrCat("total_env_steps=", budget.steps()));
    } else if (budget.has_updates()) {
      overrides_.push_back(absl::StrCat("total_updates=", budget.updates()));
    }
    return absl::OkStatus();
  }

  absl::Status LoadBase() {
    const auto loaded = LoadRunConfig(base_, overrides_);
    if (!loaded.ok()) {
      return Invalid(path_, std::string(loaded.status().message()));
    }
    config_ = Resolved(*loaded);
    by_updates_ = config_.has_total_updates();
    budget_ = by_updates_ ? config_.total_updates() : config_.total_env_steps();
    return absl::OkStatus();
  }

  absl::Status CheckMethod() const {
    const bool optuna = sweep_.method() == v1::OPTUNA;
    if (sweep_.has_sampler() && !optuna) {
      return Invalid(At("sampler"),
                     absl::StrCat("sampler is of method OPTUNA, and method is ",
                                  v1::SweepMethod_Name(sweep_.method())));
    }
    if (sweep_.has_halving() && sweep_.has_pbt()) {
      return Invalid(At("pbt"), "halving and pbt are given; expected one");
    }
    if (optuna && (sweep_.has_halving() || sweep_.has_pbt())) {
      return Invalid(At(sweep_.has_pbt() ? "pbt" : "halving"),
                     "method OPTUNA learns from trials that have ended, and "
                     "these go on; use RANDOM or GRID");
    }
    if (sweep_.method() == v1::GRID && sweep_.has_trials()) {
      return Invalid(At("trials"),
                     "trials is given, and a grid has as many as it has "
                     "points; leave it out, or use method RANDOM");
    }
    if (sweep_.trials() > kMostTrials) {
      return Invalid(At("trials"),
                     absl::StrCat("trials is ", sweep_.trials(),
                                  "; expected at most ", kMostTrials));
    }
    return absl::OkStatus();
  }

  // ---- The space

  absl::Status ReadParameters() {
    if (sweep_.parameter_size() == 0) {
      return Invalid(path_,
                     "the space is empty: there is no parameter; expected "
                     "parameter { field: \"...\" uniform|log_uniform|integer|"
                     "choice { ... } }");
    }
    std::set<std::string> seen;
    for (int i = 0; i < sweep_.parameter_size(); ++i) {
      const v1::SweepParameter& given = sweep_.parameter(i);
      Parameter parameter;
      parameter.field = given.field();
      parameter.where = absl::StrCat(
          At("parameter", i), ": parameter ",
          given.field().empty() ? absl::StrCat(i + 1) : given.field());
      RETURN_IF_ERROR(CheckField(parameter));
      if (!seen.insert(parameter.field).second) {
        return Invalid(parameter.where, "the field is given twice");
      }
      RETURN_IF_ERROR(ReadValues(given, &parameter));
      for (const std::string& value : parameter.probes) {
        RETURN_IF_ERROR(CheckValue(parameter, value));
      }
      parameters_.push_back(std::move(parameter));
    }
    return absl::OkStatus();
  }

  absl::Status CheckField(const Parameter& parameter) const {
    const std::string& field = parameter.field;
    if (field.empty()) {
      return Invalid(parameter.where,
                     "it has no field; expected a path as --set has it");
    }
    const auto found = FindConfigField(field);
    if (!found.ok()) {
      return Invalid(parameter.where, std::string(found.status().message()));
    }
    if ((*found)->message_type() != nullptr && !(*found)->is_map()) {
      return Invalid(parameter.where,
                     absl::StrCat("\"", field,
                                  "\" is a section; expected one field of it "
                                  "(`flotilla explain ",
                                  field, "` lists them)"));
    }
    if (field == "seed") {
      return Invalid(parameter.where,
                     "a seed is nothing to search for; `seeds` plays each "
                     "trial with several");
    }
    if (field == "total_env_steps" || field == "total_updates") {
      return Invalid(parameter.where, "that is what `budget` says");
    }
    for (const std::string& text : sweep_.set()) {
      if (absl::StartsWith(text, field + "=")) {
        return Invalid(parameter.where,
                       absl::StrCat("set says \"", text,
                                    "\" already; remove one of the two"));
      }
    }
    if (sweep_.has_pbt() &&
        (field == "env.id" || absl::StartsWith(field, "model."))) {
      return Invalid(parameter.where,
                     "pbt forks runs, and a run that goes on cannot change it; "
                     "search it without pbt");
    }
    return absl::OkStatus();
  }

  static std::string TypeOf(const FieldDescriptor* field) {
    if (field->is_repeated()) return "list";
    if (field->enum_type() != nullptr) return "word";
    return field->cpp_type_name();
  }

  absl::Status CheckType(const Parameter& parameter, bool whole) const {
    const FieldDescriptor* field = *FindConfigField(parameter.field);
    if (field->is_map()) return absl::OkStatus();
    const auto type = field->cpp_type();
    const bool fits = !field->is_repeated() &&
                      (type == FieldDescriptor::CPPTYPE_DOUBLE ||
                       (whole && (type == FieldDescriptor::CPPTYPE_INT32 ||
                                  type == FieldDescriptor::CPPTYPE_INT64 ||
                                  type == FieldDescriptor::CPPTYPE_UINT64)));
    if (fits) return absl::OkStatus();
    return Invalid(
        parameter.where,
        absl::StrCat(parameter.kind, " is of ",
                     whole ? "numbers" : "real numbers",
                     ", and the field's type is ", TypeOf(field), "; use ",
                     whole ? "" : "integer or ", "choice"));
  }

  static absl::Status CheckEnds(const Parameter& parameter, bool has_both,
                                bool in_order, const std::string& low,
                                const std::string& high) {
    if (!has_both) {
      return Invalid(parameter.where,
                     absl::StrCat(parameter.kind, " needs low and high"));
    }
    if (in_order) return absl::OkStatus();
    return Invalid(
        parameter.where,
        absl::StrCat("the space is empty: low is ", low, " and high ", high,
                     "; expected low below high, or one value in "
                     "`set`"));
  }

  absl::Status ReadInterval(const v1::SweepInterval& interval,
                            Parameter* parameter) const {
    RETURN_IF_ERROR(CheckType(*parameter, /*whole=*/false));
    const double low = interval.low(), high = interval.high();
    RETURN_IF_ERROR(
        CheckEnds(*parameter, interval.has_low() && interval.has_high(),
                  std::isfinite(low) && std::isfinite(high) && low < high,
                  NumberText(low), NumberText(high)));
    const bool logarithmic = parameter->kind == "log_uniform";
    if (logarithmic && low <= 0) {
      return Invalid(
          parameter->where,
          absl::StrCat("low is ", NumberText(low),
                       ", which has no logarithm; expected more than "
                       "0, or uniform"));
    }
    const bool grid = sweep_.method() == v1::GRID;
    if (grid != interval.has_points()) {
      return Invalid(parameter->where,
                     grid ? "a grid needs to know how many; give points, or a "
                            "choice"
                          : "points is of method GRID; leave it out");
    }
    parameter->low = low;
    parameter->high = high;
    parameter->probes = {NumberText(low), NumberText(high)};
    const int last = interval.points() - 1;
    for (int i = 0; grid && i <= last; ++i) {
      const double share = static_cast<double>(i) / last;
      const double value = logarithmic ? low * std::pow(high / low, share)
                                       : low + (high - low) * share;
      // In as many digits as people write.
      const double round = std::stod(absl::StrCat(value));
      parameter->values.push_back(NumberText(i == 0      ? low
                                             : i == last ? high
                                                         : round));
    }
    return absl::OkStatus();
  }

  absl::Status ReadIntegers(const v1::SweepIntegers& integers,
                            Parameter* parameter) const {
    RETURN_IF_ERROR(CheckType(*parameter, /*whole=*/true));
    RETURN_IF_ERROR(
        CheckEnds(*parameter, integers.has_low() && integers.has_high(),
                  integers.low() < integers.high(),
                  absl::StrCat(integers.low()), absl::StrCat(integers.high())));
    parameter->int_low = integers.low();
    parameter->int_high = integers.high();
    parameter->step = integers.step();
    parameter->probes = {absl::StrCat(integers.low()),
                         absl::StrCat(integers.high())};
    if (sweep_.method() != v1::GRID) return absl::OkStatus();
    const double count =
        (static_cast<double>(integers.high()) - integers.low()) /
        integers.step();
    if (count > kMostPoints) return TooManyPoints(parameter->where);
    for (int64_t value = integers.low(); value <= integers.high();
         value += integers.step()) {
      parameter->values.push_back(absl::StrCat(value));
    }
    return absl::OkStatus();
  }

  absl::Status ReadValues(const v1::SweepParameter& given,
                          Parameter* parameter) const {
    switch (given.values_case()) {
      case v1::SweepParameter::kUniform:
        parameter->kind = "uniform";
        return ReadInterval(given.uniform(), parameter);
      case v1::SweepParameter::kLogUniform:
        parameter->kind = "log_uniform";
        return ReadInterval(given.log_uniform(), parameter);
      case v1::SweepParameter::kInteger:
        parameter->kind = "integer";
        return ReadIntegers(given.integer(), parameter);
      case v1::SweepParameter::kChoice:
        parameter->kind = "choice";
        parameter->values = {given.choice().value().begin(),
                             given.choice().value().end()};
        parameter->probes = parameter->values;
        if (!parameter->values.empty()) return absl::OkStatus();
        return Invalid(parameter->where,
                       "the space is empty: choice has no value");
      case v1::SweepParameter::VALUES_NOT_SET:
        break;
    }
    return Invalid(parameter->where,
                   "it does not say which values; expected uniform, "
                   "log_uniform, integer or choice");
  }

  // Whether the field takes the value; together with others, see CheckGrid.
  absl::Status CheckValue(const Parameter& parameter,
                          const std::string& value) const {
    v1::RunConfig config = config_;
    const absl::Status applied =
        ApplyOverride(absl::StrCat(parameter.field, "=", value), &config);
    if (!applied.ok()) {
      return Invalid(parameter.where, std::string(applied.message()));
    }
    std::vector<ConfigProblem> problems;
    FindOutOfRange(config, &problems);
    for (const ConfigProblem& problem : problems) {
      if (problem.path == parameter.field) {
        return Invalid(parameter.where,
                       absl::StrCat(problem.path, " ", problem.message));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status TooManyPoints(const std::string& where) {
    return Invalid(where, absl::StrCat("the grid has more than ", kMostPoints,
                                       " points; use method RANDOM"));
  }

  // Every point of a grid, as a trial's configuration.
  absl::Status CheckGrid() const {
    if (sweep_.method() != v1::GRID) return absl::OkStatus();
    int64_t points = 1;
    for (const Parameter& parameter : parameters_) {
      points *= static_cast<int64_t>(parameter.values.size());
      if (points > kMostPoints) return TooManyPoints(path_);
    }
    // Beyond that, a trial that cannot run says so when its turn comes.
    constexpr int64_t kMostChecked = 2000;
    for (int64_t point = 0; point < std::min(points, kMostChecked); ++point) {
      v1::RunConfig config = config_;
      std::vector<std::string> told;
      int64_t rest = point;
      for (size_t i = parameters_.size(); i-- > 0;) {
        const auto& values = parameters_[i].values;
        const int64_t size = static_cast<int64_t>(values.size());
        told.insert(told.begin(), absl::StrCat(parameters_[i].field, "=",
                                               values[rest % size]));
        rest /= size;
        RETURN_IF_ERROR(ApplyOverride(told.front(), &config));
      }
      const std::vector<ConfigProblem> problems = FindProblems(config);
      if (problems.empty()) continue;
      return Invalid(
          path_,
          absl::StrCat("the grid's point ", absl::StrJoin(told, " "), ": ",
                       problems[0].path, " ", problems[0].message));
    }
    return absl::OkStatus();
  }

  // ---- Rounds

  absl::Status CheckPopulation() const {
    const std::string unit = by_updates_ ? "updates" : "steps";
    if (sweep_.has_halving()) {
      const v1::SweepHalving& halving = sweep_.halving();
      if (!halving.has_first() || halving.first() >= budget_) {
        return Invalid(
            At("halving"),
            absl::StrCat(
                "halving.first is ",
                halving.has_first() ? absl::StrCat(halving.first()) : "not set",
                "; expected less than the budget, ", budget_, " ", unit));
      }
    }
    if (!sweep_.has_pbt()) return absl::OkStatus();
    const v1::SweepPbt& pbt = sweep_.pbt();
    if (!pbt.has_interval() || pbt.interval() >= budget_) {
      return Invalid(
          At("pbt"),
          absl::StrCat(
              "pbt.interval is ",
              pbt.has_interval() ? absl::StrCat(pbt.interval()) : "not set",
              "; expected less than the budget, ", budget_, " ", unit));
    }
    if (sweep_.method() != v1::GRID && sweep_.trials() < 2) {
      return Invalid(At("trials"),
                     "trials is 1; pbt needs a population of 2 or more");
    }
    if (sweep_.seeds() > 1) {
      return Invalid(At("seeds"),
                     absl::StrCat("seeds is ", sweep_.seeds(),
                                  "; pbt forks single runs: leave it at 1"));
    }
    return absl::OkStatus();
  }

  // ---- How they are judged

  absl::Status CheckMetric() const {
    const std::string& name = sweep_.metric().name();
    const std::string where = At("metric");
    const size_t slash = name.find('/');
    std::vector<std::string> known = {"score"};
    const auto* summary = v1::RunSummary::descriptor();
    for (int i = 0; i < summary->field_count(); ++i) {
      const FieldDescriptor* field = summary->field(i);
      if (!field->is_repeated() && field->name() != "seed" &&
          (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
           field->cpp_type() == FieldDescriptor::CPPTYPE_INT64)) {
        known.push_back(field->name());
      }
    }
    if (slash == name.npos) {
      if (sweep_.metric().has_lines()) {
        return Invalid(where,
                       absl::StrCat("metric.lines is of metrics.jsonl, and "
                                    "metric.name is \"",
                                    name, "\", of summary.json"));
      }
      bool there = false;
      for (const std::string& one : known) there |= one == name;
      if (!there) {
        return Invalid(where,
                       absl::StrCat("there is no metric \"", name, "\"",
                                    DidYouMean(name, known), "; expected ",
                                    absl::StrJoin(known, ", "),
                                    ", or a name of metrics.jsonl, as "
                                    "charts/episodic_return"));
      }
    } else {
      const std::string group = name.substr(0, slash);
      const std::vector<std::string> groups(std::begin(kMetricGroups),
                                            std::end(kMetricGroups));
      bool there = false;
      for (const std::string& one : groups) there |= one == group;
      if (!there) {
        return Invalid(
            where,
            absl::StrCat("there is no metric \"", name, "\"",
                         DidYouMean(group, groups), "; metrics.jsonl has ",
                         absl::StrJoin(groups, "/*, "), "/*"));
      }
    }
    const bool of_evaluation = absl::StartsWith(name, "eval");
    if (of_evaluation && config_.evaluation().every_updates() == 0 &&
        !Searched("evaluation.every_updates")) {
      return Invalid(
          where, absl::StrCat("metric.name is \"", name,
                              "\", and evaluation.every_updates is 0: there "
                              "is no evaluation; set it, or use "
                              "charts/episodic_return"));
    }
    return absl::OkStatus();
  }

  bool Searched(const std::string& field) const {
    for (const Parameter& parameter : parameters_) {
      if (parameter.field == field) return true;
    }
    return false;
  }

  // ---- Where they run

  absl::Status CheckPlacement() const {
    const v1::SweepPlacement& placement = sweep_.placement();
    const std::string where = At("placement");
    const int64_t parallel = placement.parallel();
    if (placement.gpus() > 0 && placement.gpus() != placement.learners()) {
      return Invalid(
          where, absl::StrCat("placement.gpus is ", placement.gpus(),
                              " and placement.learners ", placement.learners(),
                              "; each learner takes a GPU: expected as many"));
    }
    if (parallel * placement.gpus() > machine_.gpus) {
      return Invalid(where, absl::StrCat(parallel, " trials at a time of ",
                                         placement.gpus(), " GPUs each take ",
                                         parallel * placement.gpus(),
                                         ", and this host has ", machine_.gpus,
                                         "; lower placement.parallel or "
                                         "placement.gpus"));
    }
    if (parallel * placement.cores() > machine_.cores) {
      return Invalid(
          where,
          absl::StrCat(parallel, " trials at a time of ", placement.cores(),
                       " cores each take ", parallel * placement.cores(),
                       ", and this process may use ", machine_.cores,
                       "; lower placement.parallel or "
                       "placement.cores"));
    }
    return absl::OkStatus();
  }

  // ---- The answer

  absl::StatusOr<Json> AsJson(const std::string& text) const {
    Json json = {{"file", path_},
                 {"text", text},
                 {"base", sweep_.base()},
                 {"base_path", base_},
                 {"base_text", WholeFile(base_).value_or("")},
                 {"base_seed", config_.seed()},
                 {"set", std::vector<std::string>(sweep_.set().begin(),
                                                  sweep_.set().end())},
                 {"method", v1::SweepMethod_Name(sweep_.method())},
                 {"sampler", v1::SweepSampler_Name(sweep_.sampler())},
                 {"seeds", sweep_.seeds()},
                 {"seed", sweep_.seed()}};
    json["parameters"] = Json::array();
    int64_t points = 1;
    for (const Parameter& parameter : parameters_) {
      Json one = {{"field", parameter.field}, {"kind", parameter.kind}};
      if (parameter.kind == "integer") {
        one["low"] = parameter.int_low;
        one["high"] = parameter.int_high;
        one["step"] = parameter.step;
      } else if (parameter.kind != "choice") {
        one["low"] = parameter.low;
        one["high"] = parameter.high;
      }
      one["values"] = parameter.values;
      points *= static_cast<int64_t>(parameter.values.size());
      json["parameters"].push_back(std::move(one));
    }
    json["trials"] =
        sweep_.method() == v1::GRID ? points : int64_t{sweep_.trials()};
    json["metric"] = {{"name", sweep_.metric().name()},
                      {"goal", v1::SweepGoal_Name(sweep_.metric().goal())},
                      {"lines", sweep_.metric().lines()}};
    json["budget"] = {
        {"field", by_updates_ ? "total_updates" : "total_env_steps"},
        {"value", budget_}};
    if (sweep_.has_halving()) {
      json["halving"] = {{"first", sweep_.halving().first()},
                         {"factor", sweep_.halving().factor()}};
    }
    if (sweep_.has_pbt()) {
      const v1::SweepPbt& pbt = sweep_.pbt();
      json["pbt"] = {{"interval", pbt.interval()},
                     {"quantile", pbt.quantile()},
                     {"perturb", pbt.perturb()},
                     {"resample", pbt.resample()}};
    }
    json["constant_schedule"] = config_.optimizer().schedule() == v1::CONSTANT;
    const v1::SweepPlacement& placement = sweep_.placement();
    json["placement"] = {{"parallel", placement.parallel()},
                         {"learners", placement.learners()},
                         {"gpus", placement.gpus()},
                         {"cores", placement.cores()}};
    return json;
  }

  const std::string path_;
  std::string base_;
  const SweepMachine machine_;
  v1::Sweep sweep_;
  TextFormat::ParseInfoTree locations_;
  std::vector<std::string> overrides_;
  v1::RunConfig config_;  // the base's, with what every trial overrides
  bool by_updates_ = false;
  int64_t budget_ = 0;
  std::vector<Parameter> parameters_;
};

}  // namespace

absl::StatusOr<Json> ReadSweep(const std::string& path, const std::string& base,
                               const SweepMachine& machine) {
  return Reader(path, base, machine).Read();
}

}  // namespace flotilla
