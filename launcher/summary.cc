#include "launcher/summary.h"

#include <google/protobuf/util/json_util.h>

#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/numbers.h"

namespace flotilla {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

const Value* Find(const Struct& object, const std::string& name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? nullptr : &found->second;
}

// "parameters equal on 2 ranks: 1a2b3c4d5e6f", or that they differ.
std::string DescribeParameters(const Struct& summary) {
  const Value* digests = Find(summary, "parameters_sha256");
  if (digests == nullptr || digests->list_value().values_size() < 2) return "";
  std::set<std::string> distinct;
  for (const Value& digest : digests->list_value().values()) {
    distinct.insert(digest.string_value());
  }
  const int ranks = digests->list_value().values_size();
  if (distinct.size() > 1) {
    return absl::StrCat("  parameters DIFFER between the ", ranks, " ranks\n");
  }
  return absl::StrCat("  parameters equal on all ", ranks, " ranks (sha256 ",
                      distinct.begin()->substr(0, 12), ")\n");
}

std::string DescribeRestarts(const Struct& summary) {
  const Value* restarts = Find(summary, "restarts");
  if (restarts == nullptr) return "";
  const double learner = JsonNumber(restarts->struct_value(), "learner");
  const double worker = JsonNumber(restarts->struct_value(), "env_worker");
  if (learner == 0 && worker == 0) return "";
  return absl::StrFormat("  restarts: %.0f learners, %.0f env workers\n",
                         learner, worker);
}

}  // namespace

absl::StatusOr<Struct> ReadJson(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no ", path));
  std::ostringstream text;
  text << file.rdbuf();
  Struct object;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(text.str(), &object);
  if (!parsed.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, " is not JSON: ", parsed.ToString()));
  }
  return object;
}

std::string JsonText(const Struct& object, const std::string& name) {
  const Value* value = Find(object, name);
  return value == nullptr ? "" : value->string_value();
}

double JsonNumber(const Struct& object, const std::string& name) {
  const Value* value = Find(object, name);
  return value == nullptr ? 0 : value->number_value();
}

std::string DescribeSummary(const Struct& summary) {
  std::string text = absl::StrCat(JsonText(summary, "status"), ": ",
                                  JsonText(summary, "algorithm"), " on ",
                                  JsonText(summary, "env_id"), "\n");
  const Value* evaluation = Find(summary, "eval_mean_return");
  if (evaluation != nullptr && evaluation->has_number_value()) {
    absl::StrAppendFormat(&text, "  evaluation return %.1f\n",
                          JsonNumber(summary, "eval_mean_return"));
  }
  absl::StrAppendFormat(
      &text, "  training return %.1f (last 100 of %s episodes)\n",
      JsonNumber(summary, "mean_return"),
      WithCommas(static_cast<int64_t>(JsonNumber(summary, "episodes"))));
  absl::StrAppendFormat(
      &text, "  %s steps, %s updates, %.1f s, %s steps/s, world of %.0f\n",
      WithCommas(static_cast<int64_t>(JsonNumber(summary, "global_steps"))),
      WithCommas(static_cast<int64_t>(JsonNumber(summary, "updates"))),
      JsonNumber(summary, "wall_seconds"),
      WithCommas(static_cast<int64_t>(JsonNumber(summary, "steps_per_second"))),
      JsonNumber(summary, "world_size"));
  absl::StrAppend(&text, DescribeRestarts(summary),
                  DescribeParameters(summary));
  if (const std::string error = JsonText(summary, "error"); !error.empty()) {
    absl::StrAppend(&text, "  error: ", error, "\n");
  }
  return text;
}

}  // namespace flotilla
