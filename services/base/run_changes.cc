#include "services/base/run_changes.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/atomic_file.h"
#include "services/base/config_change.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

using google::protobuf::TextFormat;

// Says nothing: the caller does.
class Quiet final : public google::protobuf::io::ErrorCollector {
  void AddError(int, int, const std::string&) override {}
};

}  // namespace

absl::StatusOr<v1::Changes> ReadChanges(const std::string& path) {
  const std::optional<std::string> text = WholeFile(path);
  v1::Changes changes;
  if (!text) return changes;
  Quiet quiet;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&quiet);
  bool good = parser.ParseFromString(*text, &changes);
  for (int i = 0; good && i < changes.change_size(); ++i) {
    good =
        changes.change(i).number() == i + 1 && changes.change(i).update() > 0;
  }
  if (good) return changes;
  return absl::DataLossError(absl::StrCat(
      path,
      " is no list of changes, numbered from 1, each with the update that it "
      "begins with; delete it to go on without them"));
}

absl::Status WriteChanges(const std::string& path, const v1::Changes& changes) {
  std::string text;
  TextFormat::PrintToString(changes, &text);
  return WriteFileAtomically(path, text);
}

std::vector<std::string> OverridesOf(const v1::Change& change) {
  return {change.override().begin(), change.override().end()};
}

bool HoldsAt(const v1::Change& change, int64_t update) {
  return change.refused().empty() && change.update() <= update;
}

v1::RunConfig ConfigAt(const v1::RunConfig& began, const v1::Changes& changes,
                       int64_t update) {
  v1::RunConfig config = began;
  for (const v1::Change& change : changes.change()) {
    if (!HoldsAt(change, update)) continue;
    auto changed = Changed(config, OverridesOf(change));
    if (changed.ok()) config = *std::move(changed);
  }
  return config;
}

v1::Changes WithoutFields(const v1::Changes& changes,
                          const std::vector<std::string>& paths) {
  v1::Changes kept;
  for (const v1::Change& change : changes.change()) {
    v1::Change copy = change;
    copy.clear_override();
    for (const std::string& text : change.override()) {
      if (std::find(paths.begin(), paths.end(), PathOf(text)) == paths.end()) {
        copy.add_override(text);
      }
    }
    if (copy.override_size() == 0) continue;
    copy.set_number(kept.change_size() + 1);
    *kept.add_change() = std::move(copy);
  }
  return kept;
}

}  // namespace flotilla
