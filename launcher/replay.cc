#include "launcher/replay.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "launcher/programs.h"
#include "services/base/env_origin.h"
#include "services/base/printable.h"
#include "services/base/run_folder.h"
#include "services/base/scratch_folder.h"
#include "services/base/status_macros.h"
#include "services/env/env_program.h"
#include "services/env/recorded_games.h"
#include "services/rpc/channel.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

constexpr absl::Duration kStartTimeout = absl::Minutes(2);
constexpr absl::Duration kConnectTimeout = absl::Seconds(10);
constexpr absl::Duration kEndTimeout = absl::Seconds(1);

bool Has(const v1::RecordedGame& game, const std::string& kept_as) {
  return std::find(game.kept_as().begin(), game.kept_as().end(), kept_as) !=
         game.kept_as().end();
}

// What plays a file's games.
struct Server {
  ScratchFolder scratch;
  EnvProgram program;  // none where it runs already
  std::string called;
  std::shared_ptr<grpc::Channel> channel;
};

absl::Status StartServer(const v1::RecordedGames& games,
                         const RpcCredentials& credentials,
                         std::stop_token stop, Server* server) {
  ASSIGN_OR_RETURN(const EnvOrigin origin, ParseEnvOrigin(games.env_server()));
  server->called =
      games.env_server().empty()
          ? "flotilla-envserver"
          : absl::StrCat("env.server \"", games.env_server(), "\"");
  if (origin.kind == EnvOrigin::Kind::kRunning) {
    ASSIGN_OR_RETURN(server->channel, MakeChannel(origin.address, credentials));
    if (!AwaitConnected(server->channel.get(), kConnectTimeout)) {
      return absl::UnavailableError(absl::StrCat(
          "nobody serves at ", server->called,
          ", which played this game; start it again, or replay a run whose "
          "workers start their own"));
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(server->scratch.status());
  EnvProgramOptions options;
  options.foreign = origin.kind == EnvOrigin::Kind::kProgram;
  options.called = server->called;
  options.env_id = games.env_id();
  options.socket = server->scratch.path() + "/socket";
  options.log_path = server->scratch.path() + "/log";
  options.keeps_log = false;
  if (options.foreign) {
    options.command = origin.command;
  } else {
    ASSIGN_OR_RETURN(options.command.emplace_back(),
                     FindProgram("flotilla-envserver"));
  }
  ASSIGN_OR_RETURN(server->program,
                   StartEnvProgram(options, kStartTimeout, std::move(stop)));
  ASSIGN_OR_RETURN(server->channel, MakeChannel(server->program.address, {}));
  return absl::OkStatus();
}

std::string InFull(double value) { return absl::StrCat(value); }

}  // namespace

absl::StatusOr<GameAlbum> GameAlbum::Read(const std::string& path) {
  const RunFolder run(path);
  if (!run.HoldsRun() || CheckpointFolder(path).Exists()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", path, "\" is no run's folder"));
  }
  GameAlbum album;
  album.path_ = path;
  std::vector<std::string> files = {run.training_games()};
  const std::vector<int64_t> rounds = EvaluationsIn(run);
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    files.push_back(run.evaluation_games(*round));
  }
  bool any = false;
  for (const std::string& file : files) {
    absl::StatusOr<v1::RecordedGames> games = ReadGames(file);
    if (absl::IsNotFound(games.status())) continue;
    RETURN_IF_ERROR(games.status());
    any = any || games->game_size() > 0;
    album.files_.push_back(*std::move(games));
  }
  if (any) return album;
  return absl::InvalidArgumentError(
      absl::StrCat("the run in ", path,
                   " has no game to see again: none has ended yet, or "
                   "episodes.record is false"));
}

GameAlbum GameAlbum::Of(v1::RecordedGames games) {
  GameAlbum album;
  album.files_.push_back(std::move(games));
  return album;
}

std::string GameAlbum::Place::Title() const {
  if (games->round() == 0) return absl::StrJoin(game->kept_as(), ", ");
  return absl::StrCat("evaluation ", games->round());
}

std::vector<GameAlbum::Place> GameAlbum::All() const {
  std::vector<Place> all;
  for (const v1::RecordedGames& games : files_) {
    for (const v1::RecordedGame& game : games.game()) {
      all.push_back({&games, &game, static_cast<int>(all.size()) + 1});
    }
  }
  return all;
}

absl::StatusOr<GameAlbum::Place> GameAlbum::Find(
    const std::string& which) const {
  const std::vector<Place> all = All();
  int number = 0;
  if (absl::SimpleAtoi(which, &number) && number >= 1 &&
      number <= static_cast<int>(all.size())) {
    return all[static_cast<size_t>(number) - 1];
  }
  absl::string_view rest = which;
  int64_t round = 0;
  const bool evaluation = absl::ConsumePrefix(&rest, "evaluation");
  const bool any_round = evaluation && rest.empty();
  const bool one_round = evaluation && absl::ConsumePrefix(&rest, ":") &&
                         absl::SimpleAtoi(rest, &round) && round > 0;
  Place best;
  for (const Place& place : all) {
    if (any_round && round == 0) round = place.games->round();
    if (any_round || one_round) {
      if (round == 0 || place.games->round() != round) continue;
      const bool better = best.game == nullptr ||
                          (place.game->end() == v1::RecordedGame::OVER &&
                           (best.game->end() != v1::RecordedGame::OVER ||
                            place.game->score() > best.game->score()));
      if (better) best = place;
    } else if (place.games->round() == 0 && Has(*place.game, which) &&
               (best.game == nullptr ||
                place.game->number() > best.game->number())) {
      best = place;
    }
  }
  if (best.game != nullptr) return best;
  std::vector<std::string> there;
  for (const char* as :
       {"best", "worst", "median", "newest", "crashed", "unusable"}) {
    for (const Place& place : all) {
      if (place.games->round() != 0 || !Has(*place.game, as)) continue;
      there.push_back(as);
      break;
    }
  }
  for (const v1::RecordedGames& games : files_) {
    if (games.round() == 0 || games.game_size() == 0) continue;
    there.insert(there.end(),
                 {"evaluation", absl::StrCat("evaluation:", games.round())});
    break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--episode is \"", PrintableLine(which), "\"; this run has ",
                   absl::StrJoin(there, ", "), there.empty() ? "" : " and ",
                   "1 to ", all.size(), " (flotilla replay ",
                   path_.empty() ? "RUN" : path_, " --list)"));
}

absl::Status ReplayCheck::Take(const v1::ReplayStep& step) {
  const bool next_episode = step.step() == 0 && step.episode() == episode_ + 1;
  const bool next_step = step.episode() == episode_ && step.step() == at_ + 1;
  if (!next_step && !next_episode) {
    return absl::InternalError(
        absl::StrCat("it answers step ", step.step(), " of episode ",
                     step.episode(), " after step ", at_, " of ", episode_));
  }
  const auto agents = static_cast<size_t>(games_.agents());
  episode_ = step.episode();
  at_ = step.step();
  if (at_ == 0) gone_.assign(agents, false);
  slot_.resize(agents);
  error_ = step.error();
  if (at_ == 0) return absl::OkStatus();
  ++steps_;
  if (step.terminated().size() != agents || step.truncated().size() != agents) {
    return absl::InternalError(
        absl::StrCat("it says of ", step.terminated().size(),
                     " slots how they ended, want ", agents));
  }
  for (size_t s = 0; s < agents; ++s) {
    gone_[s] = gone_[s] || step.terminated()[s] || step.truncated()[s];
  }
  for (const v1::EpisodeEnd& end : step.episode_end()) {
    if (end.row() < 0 || end.row() >= games_.agents()) continue;
    v1::GameSlot& slot = slot_[static_cast<size_t>(end.row())];
    slot.set_ended(true);
    slot.set_raw_return(end.raw_return());
    slot.set_length(end.length());
  }
  return absl::OkStatus();
}

ReplayOutcome ReplayCheck::Finish(bool lost) {
  ReplayOutcome outcome;
  outcome.steps = steps_;
  const int last = game_.episode_size() - 1;
  const int64_t had =
      episode_ <= last ? game_.episode(episode_).steps() : int64_t{0};
  // A worker that is lost does not answer the step that it is lost in.
  const bool at_the_end =
      episode_ == last && (at_ == had || (lost && at_ + 1 == had));
  const std::string where = absl::StrCat(
      "step ", at_, " of ", had,
      last > 0 ? absl::StrCat(" of episode ", episode_ + 1, " of ", last + 1)
               : "");
  const bool failed = lost || !error_.empty();
  const bool all_gone = !gone_.empty() && std::find(gone_.begin(), gone_.end(),
                                                    false) == gone_.end();
  if (failed && (game_.end() == v1::RecordedGame::OVER || !at_the_end)) {
    outcome.difference = absl::StrCat("it failed at ", where, ": ",
                                      lost ? "its server ended" : error_);
  } else if (failed) {
    return outcome;
  } else if (!at_the_end && all_gone) {
    outcome.difference = absl::StrCat("an episode ended at ", where);
  } else if (game_.end() != v1::RecordedGame::OVER) {
    outcome.difference = absl::StrCat("it did not fail, as it had (",
                                      PrintableLine(game_.error()), ")");
  } else if (!all_gone) {
    outcome.difference = absl::StrCat("it goes on after ", where);
  } else {
    for (int s = 0; s < games_.agents(); ++s) {
      const v1::GameSlot& was = game_.slot(s);
      const v1::GameSlot& is = slot_[static_cast<size_t>(s)];
      if (was.ended() == is.ended() && was.raw_return() == is.raw_return() &&
          was.length() == is.length()) {
        continue;
      }
      outcome.difference = absl::StrCat(
          "the return",
          games_.agents() > 1 ? absl::StrCat(" of agent ", s + 1) : "", " is ",
          InFull(is.raw_return()), " over ", is.length(), " steps, and was ",
          InFull(was.raw_return()), " over ", was.length());
      break;
    }
  }
  return outcome;
}

absl::StatusOr<ReplayOutcome> PlayGameAgain(
    const GameAlbum::Place& place, const RpcCredentials& credentials,
    const std::function<absl::Status(const v1::Frame&)>& on_frame,
    std::stop_token stop) {
  Server server;
  RETURN_IF_ERROR(StartServer(*place.games, credentials, stop, &server));
  const auto stub = v1::EnvService::NewStub(server.channel);
  grpc::ClientContext context;
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  const v1::ReplayRequest request =
      ReplayOf(*place.games, *place.game, static_cast<bool>(on_frame));
  const auto reader = stub->Replay(&context, request);
  ReplayCheck check(*place.games, *place.game);
  absl::Status wrong;
  v1::ReplayStep step;
  while (wrong.ok() && reader->Read(&step)) {
    wrong = check.Take(step);
    if (!wrong.ok()) {
      wrong = absl::Status(
          wrong.code(),
          absl::StrCat(server.called, ": ", std::string(wrong.message())));
    } else if (on_frame) {
      if (!step.has_frame()) {
        wrong = absl::InternalError(absl::StrCat(
            server.called, " sent no frame of step ", step.step()));
      } else {
        wrong = on_frame(step.frame());
      }
    }
  }
  if (!wrong.ok()) context.TryCancel();
  const absl::Status status = FromGrpc(reader->Finish());
  if (stop.stop_requested()) return absl::CancelledError("told to stop");
  RETURN_IF_ERROR(wrong);
  if (status.ok()) return check.Finish();
  const bool ended = server.program.process != nullptr &&
                     server.program.process->Wait(kEndTimeout).has_value();
  if (absl::IsUnavailable(status) && ended) return check.Finish(/*lost=*/true);
  const bool unknown = absl::IsUnimplemented(status);
  return absl::Status(
      status.code(),
      absl::StrCat(server.called, ": ", PrintableLine(status.message(), 2048),
                   unknown ? " (Replay, of flotilla.v1.EnvService)" : ""));
}

}  // namespace flotilla
