#include "launcher/resume.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "launcher/numbers.h"
#include "launcher/train_plan.h"
#include "services/base/atomic_file.h"
#include "services/base/config.h"
#include "services/base/config_change.h"
#include "services/base/either_field.h"
#include "services/base/json.h"
#include "services/base/kept_files.h"
#include "services/base/run_length.h"
#include "services/base/run_summary.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// Says nothing: the caller does.
class Quiet final : public google::protobuf::io::ErrorCollector {
  void AddError(int, int, const std::string&) override {}
};

std::string Learners(int min, int max) {
  if (min != max) return absl::StrCat(min, " to ", max, " learners");
  return absl::StrCat(min, min == 1 ? " learner" : " learners");
}

std::string ValueOf(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  if (field->is_repeated()) {
    std::vector<std::string> values(reflection->FieldSize(message, field));
    for (size_t i = 0; i < values.size(); ++i) {
      printer.PrintFieldValueToString(message, field, static_cast<int>(i),
                                      &values[i]);
      absl::StripTrailingAsciiWhitespace(&values[i]);
    }
    // Two maps of the same entries may have them in another order.
    if (field->is_map()) std::sort(values.begin(), values.end());
    return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
  }
  const bool has = reflection->HasField(message, field);
  if (!has && (!field->has_default_value() || IsReplaced(message, field))) {
    return "unset";
  }
  std::string value;
  printer.PrintFieldValueToString(message, field, -1, &value);
  return value;
}

void AddChanges(const std::string& prefix, const Message& before,
                const Message& after, std::vector<FieldChange>* changes) {
  for (int i = 0; i < before.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = before.GetDescriptor()->field(i);
    const std::string path = prefix + field->name();
    if (field->message_type() != nullptr && !field->is_repeated()) {
      const auto* reflection = before.GetReflection();
      if (!reflection->HasField(before, field) &&
          !reflection->HasField(after, field)) {
        continue;
      }
      AddChanges(path + ".", reflection->GetMessage(before, field),
                 reflection->GetMessage(after, field), changes);
      continue;
    }
    const std::string was = ValueOf(before, field);
    const std::string is = ValueOf(after, field);
    if (was != is) changes->push_back({path, was, is});
  }
}

// A counter of the checkpoint in `folder`; -1 if it has none.
int64_t CounterOf(const std::map<std::string, std::string>& progress,
                  const std::string& name) {
  const auto found = progress.find(name);
  int64_t value = -1;
  if (found == progress.end() || !absl::SimpleAtoi(found->second, &value)) {
    return -1;
  }
  return value;
}

// What checkpoints are made of is never written again where it lies.
absl::Status CopyCheckpoint(const fs::path& from, const fs::path& to) {
  const fs::path aside =
      to.parent_path() / absl::StrCat(".aside_", to.filename().string());
  std::error_code error, linked;
  fs::remove_all(aside, error);
  fs::create_directory(aside, error);
  for (fs::directory_iterator at(from, error), end; !error && at != end;
       at.increment(error)) {
    const fs::path place = aside / at->path().filename();
    fs::create_hard_link(at->path(), place, linked);
    if (linked) fs::copy_file(at->path(), place, error);
    if (error) break;
  }
  if (!error) fs::remove_all(to, error);  // what was named before
  if (!error) fs::rename(aside, to, error);
  if (!error) return absl::OkStatus();
  const std::string why = error.message();
  fs::remove_all(aside, error);
  return absl::UnavailableError(absl::StrCat("cannot copy the checkpoint ",
                                             from.string(), " to ", to.string(),
                                             ": ", why));
}

}  // namespace

absl::Status WriteRunTopology(const RunFolder& folder,
                              const Topology& topology) {
  v1::RunTopology note;
  note.set_learners_per_node(topology.local_world_size);
  note.set_min_learners(topology.min_world_size);
  note.set_max_learners(topology.max_world_size);
  std::string text;
  TextFormat::PrintToString(note, &text);
  return WriteFileAtomically(folder.topology(), text);
}

absl::StatusOr<std::optional<v1::RunTopology>> ReadRunTopology(
    const RunFolder& folder) {
  const std::optional<std::string> text = WholeFile(folder.topology());
  if (!text) return std::nullopt;
  Quiet quiet;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&quiet);
  v1::RunTopology note;
  if (!parser.ParseFromString(*text, &note) || note.learners_per_node() < 1 ||
      note.min_learners() < 1 || note.max_learners() < note.min_learners() ||
      note.max_learners() < note.learners_per_node()) {
    return absl::DataLossError(absl::StrCat(
        folder.topology(),
        " does not say how many learners the run had (learners_per_node, "
        "min_learners, max_learners); delete it and give --nproc-per-node"));
  }
  return note;
}

absl::Status KeepTopology(const v1::RunTopology& before, const Topology& found,
                          TopologyFlags* flags) {
  if (found.one_rank || flags->nproc_per_node) return absl::OkStatus();
  const auto nodes_of = [&](int learners) {
    return (learners + before.learners_per_node() - 1) /
           before.learners_per_node();
  };
  const int min_nodes = nodes_of(before.min_learners());
  const int max_nodes = nodes_of(before.max_learners());
  if (max_nodes > 1 && !flags->nnodes && !flags->standalone) {
    const std::string nodes = min_nodes == max_nodes
                                  ? absl::StrCat(max_nodes)
                                  : absl::StrCat(min_nodes, ":", max_nodes);
    return absl::InvalidArgumentError(absl::StrCat(
        "--resume: the run had ",
        Learners(before.min_learners(), before.max_learners()), " on ",
        absl::StrReplaceAll(nodes, {{":", " to "}}), " nodes; give --nnodes ",
        nodes,
        " --node-rank R --coordinator HOST:PORT on each, or --nnodes 1 "
        "to go on with this node alone"));
  }
  flags->resumed_learners = before.learners_per_node();
  return absl::OkStatus();
}

std::string DescribeTopologyChange(const v1::RunTopology& before,
                                   const Topology& after,
                                   const v1::RunConfig& config) {
  if (before.min_learners() == after.min_world_size &&
      before.max_learners() == after.max_world_size) {
    return "";
  }
  Topology was = after;
  was.min_world_size = before.min_learners();
  const TrainPlan old_plan = MakePlan(config, was);
  const TrainPlan plan = MakePlan(config, after);
  return absl::StrCat(
      "the run had ", Learners(before.min_learners(), before.max_learners()),
      " and goes on with ",
      Learners(after.min_world_size, after.max_world_size),
      ": an update is of ", WithCommas(plan.batch * plan.world_size),
      " steps, not ", WithCommas(old_plan.batch * old_plan.world_size));
}

bool FieldChange::IsOf(const std::string& override_text) const {
  const std::string set = PathOf(override_text);
  return set == path || absl::StartsWith(set, path + ".");
}

std::vector<FieldChange> FindChanges(const v1::RunConfig& before,
                                     const v1::RunConfig& after) {
  std::vector<FieldChange> changes;
  AddChanges("", Resolved(before), Resolved(after), &changes);
  return changes;
}

std::vector<std::string> ChangedPaths(const v1::RunConfig& before,
                                      const v1::RunConfig& after) {
  std::vector<std::string> paths;
  for (const FieldChange& change : FindChanges(before, after)) {
    paths.push_back(change.path);
  }
  // The only map whose entries can change in flight.
  std::set<std::string> keys;
  const auto compare = [&](const auto& these, const auto& those) {
    for (const auto& [key, value] : these) {
      const auto other = those.find(key);
      if (other == those.end() || other->second != value) keys.insert(key);
    }
  };
  compare(before.custom().options(), after.custom().options());
  compare(after.custom().options(), before.custom().options());
  for (const std::string& key : keys) paths.push_back("custom.options." + key);
  return paths;
}

absl::Status CheckResumable(const v1::RunConfig& before,
                            const v1::RunConfig& after) {
  std::vector<std::string> lines;
  if (AlgorithmName(before) != AlgorithmName(after)) {
    lines.push_back(absl::StrCat("the algorithm was ", AlgorithmName(before),
                                 " and would be ", AlgorithmName(after)));
  }
  if (after.has_selfplay() && !before.has_selfplay()) {
    lines.push_back("the run had no selfplay");
  }
  for (const FieldChange& change : FindChanges(before, after)) {
    if (!ShapesCheckpoints(change.path)) continue;
    lines.push_back(absl::StrCat(change.path, " was ", change.was,
                                 " and would be ", change.is));
  }
  if (lines.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot resume: ", absl::StrJoin(lines, "; "),
                   ". Leave it as it was, or start another run"));
}

absl::Status KeepFiles(const RunFolder& source, v1::RunConfig* before,
                       v1::RunConfig* after) {
  for (const KeptFile& file : KeptFiles()) {
    const std::string was = file.get(*before);
    const std::string is = file.get(*after);
    const std::string path = file.PathIn(source);
    const auto kept = WholeFile(path);
    if (was.empty() || is.empty() || !kept) continue;
    const auto named = WholeFile(is);
    const bool other = is != was && named && *named != *kept;
    if (other && !file.may_change) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot resume: ", file.field, " is \"", is,
                       "\", and that is another file than the run's own, ",
                       path, ". Leave it out, or start another run"));
    }
    file.set(other ? is : path, before);
    file.set(other ? is : path, after);
  }
  return absl::OkStatus();
}

std::optional<int64_t> UpdateOf(const std::string& checkpoint) {
  const auto text = WholeFile(CheckpointFolder(checkpoint).progress());
  const auto progress = ParseFlatJson(text.value_or(""));
  if (!progress.ok()) return std::nullopt;
  const int64_t update = CounterOf(*progress, "update");
  return update < 0 ? std::nullopt : std::optional(update);
}

absl::StatusOr<LatestBefore> GoOnFrom(const std::string& checkpoint,
                                      const RunFolder& folder) {
  std::error_code error;
  const fs::path from = fs::canonical(checkpoint, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("--resume: there is no checkpoint in ", checkpoint));
  }
  LatestBefore before;
  before.link = fs::read_symlink(folder.latest_checkpoint(), error).string();
  const fs::path checkpoints = folder.checkpoints();
  std::string name = from.filename().string();
  fs::create_directory(checkpoints, error);
  if (!fs::equivalent(from.parent_path(), checkpoints, error)) {
    // What the run has of that step is its own.
    if (!absl::StartsWith(name, "step_") ||
        fs::exists(checkpoints / name, error)) {
      name = "resumed_from";
    }
    before.copied = (checkpoints / name).string();
    RETURN_IF_ERROR(CopyCheckpoint(from, before.copied));
  }
  RETURN_IF_ERROR(LinkAtomically(folder.latest_checkpoint(), name));
  return before;
}

void TakeBack(const LatestBefore& before, const RunFolder& folder) {
  std::error_code error;
  if (before.link.empty()) {
    fs::remove(folder.latest_checkpoint(), error);
  } else {
    LinkAtomically(folder.latest_checkpoint(), before.link).IgnoreError();
  }
  if (!before.copied.empty()) fs::remove_all(before.copied, error);
  fs::remove(folder.checkpoints(), error);  // if there is nothing in it
}

std::string NothingLeft(const RunFolder& folder, const std::string& checkpoint,
                        const v1::RunConfig& config) {
  const auto summary = ReadRunSummary(folder.summary());
  const auto text = WholeFile(CheckpointFolder(checkpoint).progress());
  if (!summary.ok() || !text) return "";
  const auto progress = ParseFlatJson(*text);
  if (!progress.ok()) return "";
  const int64_t update = CounterOf(*progress, "update");
  const int64_t steps = CounterOf(*progress, "global_step");
  // Of another checkpoint, or of before the run went on.
  if (update < 0 || summary->updates() != update) return "";
  const bool solved = summary->status() == v1::RunSummary::SOLVED;
  if (!solved && summary->status() != v1::RunSummary::COMPLETED) return "";
  if (ShareDone(config, update, steps) >= 1) {
    const std::string length =
        config.has_total_updates()
            ? absl::StrCat("total_updates is ", config.total_updates())
            : absl::StrCat("total_env_steps is ", config.total_env_steps());
    return absl::StrCat("the run was ", solved ? "solved" : "completed",
                        " at update ", WithCommas(update), ", after ",
                        WithCommas(steps), " steps, and ", length,
                        ": nothing is left to do. A larger one goes further");
  }
  const double stop_return = config.evaluation().stop_return();
  const double reached = summary->eval_mean_return();
  if (solved && config.evaluation().has_stop_return() &&
      reached >= stop_return) {
    return absl::StrFormat(
        "the run was solved at update %s by an evaluation of %g, and "
        "evaluation.stop_return is %g: nothing is left to do. A larger one "
        "goes further",
        WithCommas(update), reached, stop_return);
  }
  return "";
}

}  // namespace flotilla
