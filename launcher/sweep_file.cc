#include "launcher/sweep_file.h"

#include <google/protobuf/text_format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "flotilla/v1/summary.pb.h"
#include "flotilla/v1/sweep.pb.h"
#include "launcher/config_finder.h"
#include "launcher/sweep_space.h"
#include "services/base/config.h"
#include "services/base/config_ranges.h"
#include "services/base/config_text.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

constexpr int64_t kMostTrials = 100000;

// What metrics.jsonl has numbers of.
constexpr const char* kMetricGroups[] = {
    "agents", "charts", "env",     "eval",     "losses", "metrics", "perf",
    "policy", "replay", "rollout", "selfplay", "sync",   "system"};

class Reader {
 public:
  Reader(std::string path, std::string base, const SweepMachine& machine,
         std::optional<int> parallel)
      : path_(std::move(path)),
        base_(std::move(base)),
        machine_(machine),
        given_parallel_(parallel) {}

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
      return InvalidAt(path_, absl::StrCat(problem.path, " ", problem.message));
    }
    if (given_parallel_) {
      sweep_.mutable_placement()->set_parallel(*given_parallel_);
    }
    RETURN_IF_ERROR(FindBase());
    RETURN_IF_ERROR(CheckBudget());
    RETURN_IF_ERROR(LoadBase());
    RETURN_IF_ERROR(CheckMethod());
    ASSIGN_OR_RETURN(parameters_,
                     ReadSpace(sweep_, config_, path_, [this](int index) {
                       return At("parameter", index);
                     }));
    RETURN_IF_ERROR(CheckPopulation());
    RETURN_IF_ERROR(CheckMetric());
    RETURN_IF_ERROR(CheckPlacement());
    RETURN_IF_ERROR(CheckGrid(sweep_, config_, path_, parameters_));
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
      return InvalidAt(
          path_,
          "base is not set; expected a name that `flotilla configs` "
          "lists, or a file");
    }
    if (!base_.empty()) return absl::OkStatus();
    auto found = FindConfig(sweep_.base());
    if (!found.ok()) {
      return InvalidAt(At("base"),
                       absl::StrCat("base: ", found.status().message()));
    }
    base_ = *std::move(found);
    return absl::OkStatus();
  }

  absl::Status CheckBudget() {
    const v1::SweepBudget& budget = sweep_.budget();
    if (budget.has_steps() && budget.has_updates()) {
      return InvalidAt(At("budget"),
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
      return InvalidAt(path_, std::string(loaded.status().message()));
    }
    config_ = Resolved(*loaded);
    by_updates_ = config_.has_total_updates();
    budget_ = by_updates_ ? config_.total_updates() : config_.total_env_steps();
    return absl::OkStatus();
  }

  absl::Status CheckMethod() const {
    const bool optuna = sweep_.method() == v1::OPTUNA;
    if (sweep_.has_sampler() && !optuna) {
      return InvalidAt(
          At("sampler"),
          absl::StrCat("sampler is of method OPTUNA, and method is ",
                       v1::SweepMethod_Name(sweep_.method())));
    }
    if (sweep_.has_halving() && sweep_.has_pbt()) {
      return InvalidAt(At("pbt"), "halving and pbt are given; expected one");
    }
    if (optuna && (sweep_.has_halving() || sweep_.has_pbt())) {
      return InvalidAt(At(sweep_.has_pbt() ? "pbt" : "halving"),
                       "method OPTUNA learns from trials that have ended, and "
                       "these go on; use RANDOM or GRID");
    }
    if (sweep_.method() == v1::GRID && sweep_.has_trials()) {
      return InvalidAt(At("trials"),
                       "trials is given, and a grid has as many as it has "
                       "points; leave it out, or use method RANDOM");
    }
    if (sweep_.trials() > kMostTrials) {
      return InvalidAt(At("trials"),
                       absl::StrCat("trials is ", sweep_.trials(),
                                    "; expected at most ", kMostTrials));
    }
    return absl::OkStatus();
  }

  // ---- Rounds

  absl::Status CheckPopulation() const {
    const std::string unit = by_updates_ ? "updates" : "steps";
    if (sweep_.has_halving()) {
      const v1::SweepHalving& halving = sweep_.halving();
      if (!halving.has_first() || halving.first() >= budget_) {
        return InvalidAt(
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
      return InvalidAt(
          At("pbt"),
          absl::StrCat(
              "pbt.interval is ",
              pbt.has_interval() ? absl::StrCat(pbt.interval()) : "not set",
              "; expected less than the budget, ", budget_, " ", unit));
    }
    if (sweep_.method() != v1::GRID && sweep_.trials() < 2) {
      return InvalidAt(At("trials"),
                       "trials is 1; pbt needs a population of 2 or more");
    }
    if (sweep_.seeds() > 1) {
      return InvalidAt(At("seeds"),
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
        return InvalidAt(where,
                         absl::StrCat("metric.lines is of metrics.jsonl, and "
                                      "metric.name is \"",
                                      name, "\", of summary.json"));
      }
      bool there = false;
      for (const std::string& one : known) there |= one == name;
      if (!there) {
        return InvalidAt(where,
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
        return InvalidAt(
            where,
            absl::StrCat("there is no metric \"", name, "\"",
                         DidYouMean(group, groups), "; metrics.jsonl has ",
                         absl::StrJoin(groups, "/*, "), "/*"));
      }
    }
    const bool of_evaluation = absl::StartsWith(name, "eval");
    if (of_evaluation && config_.evaluation().every_updates() == 0 &&
        !Searched("evaluation.every_updates")) {
      return InvalidAt(
          where, absl::StrCat("metric.name is \"", name,
                              "\", and evaluation.every_updates is 0: there "
                              "is no evaluation; set it, or use "
                              "charts/episodic_return"));
    }
    return absl::OkStatus();
  }

  bool Searched(const std::string& field) const {
    for (const SweepParameterSpace& parameter : parameters_) {
      if (parameter.field == field) return true;
    }
    return false;
  }

  // ---- Where they run

  absl::Status CheckPlacement() const {
    const v1::SweepPlacement& placement = sweep_.placement();
    const std::string where = At("placement");
    const int64_t parallel = placement.parallel();
    const std::string fewer =
        given_parallel_ ? "--parallel" : "placement.parallel";
    if (placement.gpus() > 0 && placement.gpus() != placement.learners()) {
      return InvalidAt(
          where, absl::StrCat("placement.gpus is ", placement.gpus(),
                              " and placement.learners ", placement.learners(),
                              "; each learner takes a GPU: expected as many"));
    }
    if (parallel * placement.gpus() > machine_.gpus) {
      return InvalidAt(
          where,
          absl::StrCat(parallel, " trials at a time of ", placement.gpus(),
                       " GPUs each take ", parallel * placement.gpus(),
                       ", and this host has ", machine_.gpus, "; lower ", fewer,
                       " or placement.gpus"));
    }
    if (parallel * placement.cores() > machine_.cores) {
      return InvalidAt(
          where,
          absl::StrCat(parallel, " trials at a time of ", placement.cores(),
                       " cores each take ", parallel * placement.cores(),
                       ", and this process may use ", machine_.cores,
                       "; lower ", fewer, " or placement.cores"));
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
    for (const SweepParameterSpace& parameter : parameters_) {
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
  const std::optional<int> given_parallel_;
  v1::Sweep sweep_;
  TextFormat::ParseInfoTree locations_;
  std::vector<std::string> overrides_;
  v1::RunConfig config_;  // the base's, with what every trial overrides
  bool by_updates_ = false;
  int64_t budget_ = 0;
  std::vector<SweepParameterSpace> parameters_;
};

}  // namespace

absl::StatusOr<Json> ReadSweep(const std::string& path, const std::string& base,
                               const SweepMachine& machine,
                               std::optional<int> parallel) {
  return Reader(path, base, machine, parallel).Read();
}

}  // namespace flotilla
