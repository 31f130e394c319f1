#include "services/coordinator/journal.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace flotilla {
namespace {

constexpr char kTitle[] =
    "# Flotilla coordinator's journal: run, newest generation, what everyone "
    "is told, whose secrets speak for whom.\n";
// Text format escapes line breaks: no value has this in it.
constexpr char kBetween[] = "---\n";

std::string Format(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

// Says nothing: the caller does.
class Quiet final : public google::protobuf::io::ErrorCollector {
  void AddError(int, int, const std::string&) override {}
};

bool Parse(const std::string& text, google::protobuf::Message* message) {
  Quiet quiet;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&quiet);
  return parser.ParseFromString(text, message);
}

// Whether a roster can have written it.
bool IsConsistent(const RosterState& state) {
  const v1::Assignment& world = state.world;
  const v1::Command& command = state.command;
  std::set<std::string> ids;
  for (const v1::Member& learner : world.learner()) {
    if (learner.role() != v1::LEARNER || !ids.insert(learner.id()).second) {
      return false;
    }
  }
  for (const auto& [id, restarts] : state.keys.restarts()) {
    if (restarts < 0) return false;
  }
  if (state.keys.retired_restarts() < 0) return false;
  const bool active = command.state() == v1::ACTIVE;
  return world.world_size() == world.learner_size() &&
         world.generation() <= command.generation() &&
         command.fenced_generation() <= command.generation() &&
         (!active || (command.fenced_generation() < command.generation() &&
                      world.generation() == command.generation()));
}

}  // namespace

std::string FormatJournal(const RosterState& state) {
  v1::Command durable = state.command;
  durable.clear_preempt_update();
  durable.clear_preempt_generation();
  return absl::StrCat(kTitle, Format(state.run), kBetween, Format(state.world),
                      kBetween, Format(durable), kBetween, Format(state.keys));
}

absl::StatusOr<std::optional<RosterState>> ReadJournal(
    const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file && errno == ENOENT) return std::nullopt;
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || text.bad() || errno == EISDIR) {
    return absl::ErrnoToStatus(
        errno == 0 ? EIO : errno,
        absl::StrCat("cannot read the journal \"", path, "\""));
  }
  const std::vector<std::string> parts = absl::StrSplit(text.str(), kBetween);
  RosterState state;
  if (parts.size() != 4 || !Parse(parts[0], &state.run) ||
      !Parse(parts[1], &state.world) || !Parse(parts[2], &state.command) ||
      !Parse(parts[3], &state.keys) || !IsConsistent(state)) {
    return absl::DataLossError(absl::StrCat(
        "\"", path,
        "\" is no coordinator's journal. Delete it if none of its run's "
        "learners is alive; otherwise start the coordinator without it"));
  }
  return state;
}

}  // namespace flotilla
