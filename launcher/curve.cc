#include "launcher/curve.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/json.h"

namespace flotilla {
namespace {

std::set<std::string> MetricNames(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    const auto json = ParseJson(line);
    if (!json.ok() || !json->is_object()) continue;
    for (const auto& [name, value] : json->items()) names.insert(name);
  }
  return names;
}

// Where `line` belongs on `x`. An evaluation ends later than what it is of was learned,
// and its line stands where the run was by then.
double PlaceOf(const Json& line, const std::string& x) {
  const double at = line.at(x).get<double>();
  if (x != "global_step" || !line.contains("eval/update") ||
      !line.at("eval/update").is_number() || !line.contains("update") ||
      !line.at("update").is_number()) {
    return at;
  }
  const double update = line.at("update").get<double>();
  return update > 0 ? at * line.at("eval/update").get<double>() / update : at;
}

}  // namespace

Curve ReadCurve(const std::string& path, const std::string& metric,
                const std::string& x) {
  Curve curve;
  std::ifstream file(path, std::ios::binary);
  const std::string key = absl::StrCat("\"", metric, "\":");
  bool known = false;
  for (std::string line; std::getline(file, line);) {
    if (!absl::StrContains(line, key)) continue;  // quicker than to parse it
    const auto json = ParseJson(line);
    if (!json.ok() || !json->is_object() || !json->contains(metric) ||
        !json->contains(x) || !json->at(x).is_number()) {
      continue;
    }
    known = true;
    const Json& value = json->at(metric);
    if (value.is_number() && std::isfinite(value.get<double>())) {
      curve.points.push_back({PlaceOf(*json, x), value.get<double>()});
    } else {
      ++curve.not_finite;  // null, for JSON has no word for it
    }
  }
  std::stable_sort(
      curve.points.begin(), curve.points.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  if (!known) curve.other_names = MetricNames(path);
  return curve;
}

double ValueAt(const Curve& curve, double x) {
  const auto& points = curve.points;
  const auto after = std::upper_bound(
      points.begin(), points.end(), x,
      [](double at, const auto& point) { return at < point.first; });
  if (after == points.begin()) return points.front().second;
  if (after == points.end()) return points.back().second;
  const auto before = after - 1;
  const double share = (x - before->first) / (after->first - before->first);
  return std::lerp(before->second, after->second, share);
}

}  // namespace flotilla
