#include "launcher/sweep_space.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/config_docs.h"
#include "services/base/config.h"
#include "services/base/config_change.h"
#include "services/base/config_ranges.h"
#include "services/base/config_rules.h"
#include "services/base/config_text.h"
#include "services/base/json.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using google::protobuf::FieldDescriptor;

constexpr int64_t kMostPoints = 10000;

// As --set takes it, and as short as reads back the same.
std::string NumberText(double value) { return Json(value).dump(); }

absl::Status TooManyPoints(const std::string& where) {
  return InvalidAt(where, absl::StrCat("the grid has more than ", kMostPoints,
                                       " points; use method RANDOM"));
}

class Space {
 public:
  Space(const v1::Sweep& sweep, const v1::RunConfig& config,
        const std::string& path, absl::FunctionRef<std::string(int)> at)
      : sweep_(sweep), config_(config), path_(path), at_(at) {}

  absl::StatusOr<std::vector<SweepParameterSpace>> Read() {
    RETURN_IF_ERROR(ReadParameters());
    return std::move(parameters_);
  }

 private:
  absl::Status ReadParameters() {
    if (sweep_.parameter_size() == 0) {
      return InvalidAt(path_,
                       "the space is empty: there is no parameter; expected "
                       "parameter { field: \"...\" uniform|log_uniform|integer|"
                       "choice { ... } }");
    }
    std::set<std::string> seen;
    for (int i = 0; i < sweep_.parameter_size(); ++i) {
      const v1::SweepParameter& given = sweep_.parameter(i);
      SweepParameterSpace parameter;
      parameter.field = given.field();
      parameter.where = absl::StrCat(
          at_(i), ": parameter ",
          given.field().empty() ? absl::StrCat(i + 1) : given.field());
      RETURN_IF_ERROR(CheckField(parameter));
      if (!seen.insert(parameter.field).second) {
        return InvalidAt(parameter.where, "the field is given twice");
      }
      RETURN_IF_ERROR(ReadValues(given, &parameter));
      for (const std::string& value : parameter.probes) {
        RETURN_IF_ERROR(CheckValue(parameter, value));
      }
      parameters_.push_back(std::move(parameter));
    }
    return absl::OkStatus();
  }

  absl::Status CheckField(const SweepParameterSpace& parameter) const {
    const std::string& field = parameter.field;
    if (field.empty()) {
      return InvalidAt(parameter.where,
                       "it has no field; expected a path as --set has it");
    }
    const auto found = FindConfigField(field);
    if (!found.ok()) {
      return InvalidAt(parameter.where, std::string(found.status().message()));
    }
    if ((*found)->message_type() != nullptr && !(*found)->is_map()) {
      return InvalidAt(parameter.where,
                       absl::StrCat("\"", field,
                                    "\" is a section; expected one field of it "
                                    "(`flotilla explain ",
                                    field, "` lists them)"));
    }
    if (field == "seed") {
      return InvalidAt(parameter.where,
                       "a seed is nothing to search for; `seeds` plays each "
                       "trial with several");
    }
    if (field == "total_env_steps" || field == "total_updates") {
      return InvalidAt(parameter.where, "that is what `budget` says");
    }
    for (const std::string& text : sweep_.set()) {
      if (absl::StartsWith(text, field + "=")) {
        return InvalidAt(parameter.where,
                         absl::StrCat("set says \"", text,
                                      "\" already; remove one of the two"));
      }
    }
    if (sweep_.has_pbt() && ShapesCheckpoints(field)) {
      return InvalidAt(
          parameter.where,
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

  absl::Status CheckType(const SweepParameterSpace& parameter,
                         bool whole) const {
    const FieldDescriptor* field = *FindConfigField(parameter.field);
    if (field->is_map()) return absl::OkStatus();
    const auto type = field->cpp_type();
    const bool fits = !field->is_repeated() &&
                      (type == FieldDescriptor::CPPTYPE_DOUBLE ||
                       (whole && (type == FieldDescriptor::CPPTYPE_INT32 ||
                                  type == FieldDescriptor::CPPTYPE_INT64 ||
                                  type == FieldDescriptor::CPPTYPE_UINT64)));
    if (fits) return absl::OkStatus();
    return InvalidAt(
        parameter.where,
        absl::StrCat(parameter.kind, " is of ",
                     whole ? "numbers" : "real numbers",
                     ", and the field's type is ", TypeOf(field), "; use ",
                     whole ? "" : "integer or ", "choice"));
  }

  static absl::Status CheckEnds(const SweepParameterSpace& parameter,
                                bool has_both, bool in_order,
                                const std::string& low,
                                const std::string& high) {
    if (!has_both) {
      return InvalidAt(parameter.where,
                       absl::StrCat(parameter.kind, " needs low and high"));
    }
    if (in_order) return absl::OkStatus();
    return InvalidAt(
        parameter.where,
        absl::StrCat("the space is empty: low is ", low, " and high ", high,
                     "; expected low below high, or one value in "
                     "`set`"));
  }

  absl::Status ReadInterval(const v1::SweepInterval& interval,
                            SweepParameterSpace* parameter) const {
    RETURN_IF_ERROR(CheckType(*parameter, /*whole=*/false));
    const double low = interval.low(), high = interval.high();
    RETURN_IF_ERROR(
        CheckEnds(*parameter, interval.has_low() && interval.has_high(),
                  std::isfinite(low) && std::isfinite(high) && low < high,
                  NumberText(low), NumberText(high)));
    const bool logarithmic = parameter->kind == "log_uniform";
    if (logarithmic && low <= 0) {
      return InvalidAt(
          parameter->where,
          absl::StrCat("low is ", NumberText(low),
                       ", which has no logarithm; expected more than "
                       "0, or uniform"));
    }
    const bool grid = sweep_.method() == v1::GRID;
    if (grid != interval.has_points()) {
      return InvalidAt(parameter->where,
                       grid
                           ? "a grid needs to know how many; give points, or a "
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
                            SweepParameterSpace* parameter) const {
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
                          SweepParameterSpace* parameter) const {
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
        return InvalidAt(parameter->where,
                         "the space is empty: choice has no value");
      case v1::SweepParameter::VALUES_NOT_SET:
        break;
    }
    return InvalidAt(parameter->where,
                     "it does not say which values; expected uniform, "
                     "log_uniform, integer or choice");
  }

  // Whether the field takes the value; together with others, see CheckGrid.
  absl::Status CheckValue(const SweepParameterSpace& parameter,
                          const std::string& value) const {
    v1::RunConfig config = config_;
    const absl::Status applied =
        ApplyOverride(absl::StrCat(parameter.field, "=", value), &config);
    if (!applied.ok()) {
      return InvalidAt(parameter.where, std::string(applied.message()));
    }
    std::vector<ConfigProblem> problems;
    FindOutOfRange(config, &problems);
    for (const ConfigProblem& problem : problems) {
      if (problem.path == parameter.field) {
        return InvalidAt(parameter.where,
                         absl::StrCat(problem.path, " ", problem.message));
      }
    }
    return absl::OkStatus();
  }

  const v1::Sweep& sweep_;
  const v1::RunConfig& config_;
  const std::string& path_;
  const absl::FunctionRef<std::string(int)> at_;
  std::vector<SweepParameterSpace> parameters_;
};

}  // namespace

absl::Status InvalidAt(const std::string& where, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", message));
}

absl::StatusOr<std::vector<SweepParameterSpace>> ReadSpace(
    const v1::Sweep& sweep, const v1::RunConfig& config,
    const std::string& path, absl::FunctionRef<std::string(int)> at) {
  return Space(sweep, config, path, at).Read();
}

absl::Status CheckGrid(const v1::Sweep& sweep, const v1::RunConfig& config,
                       const std::string& path,
                       const std::vector<SweepParameterSpace>& parameters) {
  if (sweep.method() != v1::GRID) return absl::OkStatus();
  int64_t points = 1;
  for (const SweepParameterSpace& parameter : parameters) {
    points *= static_cast<int64_t>(parameter.values.size());
    if (points > kMostPoints) return TooManyPoints(path);
  }
  // Beyond that, a trial that cannot run says so when its turn comes.
  constexpr int64_t kMostChecked = 2000;
  for (int64_t point = 0; point < std::min(points, kMostChecked); ++point) {
    v1::RunConfig trial = config;
    std::vector<std::string> told;
    int64_t rest = point;
    for (size_t i = parameters.size(); i-- > 0;) {
      const auto& values = parameters[i].values;
      const int64_t size = static_cast<int64_t>(values.size());
      told.insert(told.begin(),
                  absl::StrCat(parameters[i].field, "=", values[rest % size]));
      rest /= size;
      RETURN_IF_ERROR(ApplyOverride(told.front(), &trial));
    }
    const std::vector<ConfigProblem> problems = FindProblems(trial);
    if (problems.empty()) continue;
    return InvalidAt(
        path, absl::StrCat("the grid's point ", absl::StrJoin(told, " "), ": ",
                           problems[0].path, " ", problems[0].message));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
