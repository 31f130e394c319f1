// services/base/config.h: any file, any --set flags. The first line of the
// input is the flags, separated by tabs; the rest is the file.

#include "services/base/config.h"

#include <glog/logging.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "services/base/config_rules.h"
#include "services/base/config_text.h"

namespace flotilla {
namespace {

constexpr char kFile[] = "fuzz.textproto";

v1::RunConfig Parse(const std::string& text) {
  v1::RunConfig config;
  google::protobuf::TextFormat::ParseInfoTree locations;
  const absl::Status parsed = ParseConfigText(text, kFile, &config, &locations);
  if (!parsed.ok()) {
    CHECK(absl::IsInvalidArgument(parsed)) << parsed;
    CHECK(absl::StartsWith(parsed.message(), "fuzz.textproto:")) << parsed;
    return v1::RunConfig();
  }
  for (const ConfigProblem& problem : FindProblems(config)) {
    LocationOf(problem.path, locations);
  }
  return config;
}

// What is valid resolves to something that says the same.
void CheckResolved(const v1::RunConfig& config) {
  const std::string text = FormatResolved(config);
  v1::RunConfig again;
  google::protobuf::TextFormat::ParseInfoTree locations;
  const absl::Status parsed = ParseConfigText(text, kFile, &again, &locations);
  CHECK(parsed.ok()) << parsed;
  CHECK_EQ(FormatResolved(again), text);
  CHECK(Validate(again).ok()) << Validate(again);
}

}  // namespace
}  // namespace flotilla

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flotilla;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(input, absl::MaxSplits('\n', 1));
  v1::RunConfig config = Parse(parts.second);
  for (const std::string& flag :
       std::vector<std::string>(absl::StrSplit(parts.first, '\t'))) {
    const absl::Status applied = ApplyOverride(flag, &config);
    if (applied.ok()) continue;
    CHECK(absl::IsInvalidArgument(applied)) << applied;
    CHECK(absl::StartsWith(applied.message(), "--set ")) << applied;
  }
  if (Validate(config).ok()) CheckResolved(config);
  return 0;
}
