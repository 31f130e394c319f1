#include "learner/training/changes.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"
#include "services/base/config_change.h"
#include "services/base/printable.h"
#include "services/base/run_changes.h"

namespace flotilla {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Which change that is, as a number that a double keeps whole: never 0.
double Digest(const v1::Change& change) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const std::string text = absl::StrCat(change.number(), "\n",
                                        absl::StrJoin(change.override(), "\n"));
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return static_cast<double>((hash >> 12) | 1);
}

// Of those that hold at `update`.
std::string TextOf(const v1::Changes& changes, int64_t update) {
  std::string text;
  for (const v1::Change& change : changes.change()) {
    if (!HoldsAt(change, update)) continue;
    absl::StrAppend(&text, absl::StrJoin(change.override(), "\n"), "\n");
  }
  return text;
}

// The field as a number; nullopt if it is none.
std::optional<double> NumberAt(const v1::RunConfig& config,
                               const std::string& path) {
  const Message* message = &config;
  for (const auto& name : absl::StrSplit(path, '.')) {
    const FieldDescriptor* field =
        message->GetDescriptor()->FindFieldByName(std::string(name));
    if (field == nullptr || field->is_repeated()) return std::nullopt;
    const auto* reflection = message->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        message = &reflection->GetMessage(*message, field);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->GetDouble(*message, field);
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->GetInt32(*message, field);
      case FieldDescriptor::CPPTYPE_INT64:
        return static_cast<double>(reflection->GetInt64(*message, field));
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection->GetBool(*message, field);
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection->GetEnumValue(*message, field);
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

Changes::Changes(const LoopParts& parts)
    : parts_(parts), config_(parts.config) {}

void Changes::HoldFor(const Progress& progress) {
  const int64_t update = progress.update + 1;
  std::string holds = TextOf(progress.changes, update);
  if (holds == held_) return;
  v1::RunConfig config = ConfigAt(parts_.config, progress.changes, update);
  const absl::Status tried = Try(config);
  LOG_IF(ERROR, !tried.ok())
      << "what was changed in flight does not hold: " << tried.message();
  held_ = std::move(holds);
  changed_.clear();
  for (const v1::Change& change : progress.changes.change()) {
    if (!HoldsAt(change, update)) continue;
    for (const std::string& text : change.override()) {
      const std::string path = PathOf(text);
      const std::optional<double> number = NumberAt(config_, path);
      if (number.has_value()) changed_[path] = *number;
    }
  }
}

// Makes `after` hold, or nothing of it.
absl::Status Changes::Try(const v1::RunConfig& after) {
  if (ChangesLearning(config_, after)) {
    const absl::Status learns = parts_.algorithm->Reconfigure(
        parts_.learned ? parts_.learned(after) : after);
    if (!learns.ok()) return learns;
  }
  config_ = after;
  return absl::OkStatus();
}

void Changes::Add(const Progress& progress, Agreement* agreement) {
  next_.Clear();
  const int64_t number = progress.changes.change_size() + 1;
  const v1::Command latest = parts_.coordinator->Latest();
  for (const v1::Change& change : latest.change()) {
    if (change.number() == number) next_ = change;
  }
  agreed_ =
      agreement->AddPerRank("change", next_.number() > 0 ? Digest(next_) : 0);
}

void Changes::Take(const Agreement& agreement, Progress* progress) {
  const Agreement::Ranks ranks = agreement[agreed_];
  const bool agreed = next_.number() > 0 &&
                      std::all_of(ranks.begin(), ranks.end(),
                                  [&](double d) { return d == ranks[0]; });
  if (agreed) {
    v1::Change* change = progress->changes.add_change();
    *change = next_;
    change->set_update(progress->update + 1);
    change->clear_refused();
    // Every rank has the same configuration, and comes to the same answer.
    const auto after = Changed(config_, OverridesOf(next_));
    const absl::Status tried = after.ok() ? Try(*after) : after.status();
    // Heartbeats and commands carry it; an algorithm may say anything.
    if (!tried.ok()) change->set_refused(PrintableLine(tried.message()));
    LOG(INFO) << "change " << change->number() << ", "
              << absl::StrJoin(change->override(), " ")
              << (tried.ok() ? absl::StrCat(", holds from update ",
                                            change->update(), " on")
                             : absl::StrCat(", is refused: ", tried.message()));
  }
  HoldFor(*progress);
}

void Changes::AppendTo(std::vector<Metric>* line) const {
  for (const auto& [field, number] : changed_) {
    line->push_back({"changes/" + field, number});
  }
}

void Changes::Describe(const Progress& progress, v1::Heartbeat* beat) const {
  if (progress.changes.change_size() == 0) return;
  const v1::Command latest = parts_.coordinator->Latest();
  for (int i = 0; i < progress.changes.change_size(); ++i) {
    const v1::Change& mine = progress.changes.change(i);
    const bool known =
        i < latest.change_size() &&
        latest.change(i).update() == mine.update() &&
        std::equal(mine.override().begin(), mine.override().end(),
                   latest.change(i).override().begin(),
                   latest.change(i).override().end());
    if (known) continue;
    *beat->mutable_change() = progress.changes.change();
    return;
  }
}

}  // namespace flotilla
