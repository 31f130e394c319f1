#include "learner/actor/game_tapes.h"

#include <algorithm>
#include <cstring>

#include "learner/actor/opponents.h"
#include "services/base/random.h"
#include "services/env/agents.h"

namespace flotilla {
namespace {

// Steps between two looks at how long games have become.
constexpr int64_t kLook = 1024;
// What an episode takes beside its actions, about.
constexpr int64_t kEpisodeBytes = 128;

}  // namespace

GameTapes::GameTapes(const Options& options, const v1::EnvSpec& spec,
                     uint64_t seed, int slots, int rows)
    : options_(options),
      seed_(seed),
      agents_(SlotsOf(spec)),
      envs_(rows / agents_),
      max_bytes_(
          std::min(options.max_bytes, kMostBytes / std::max(1, slots * envs_))),
      groups_(slots),
      tapes_(static_cast<size_t>(slots) * envs_) {
  for (const v1::Leaf& leaf : spec.action()) {
    leaves_.push_back(RecordedAs(leaf));
    leaves_.back().elements *= agents_;  // of an environment from here on
    step_bytes_ +=
        static_cast<int64_t>(leaves_.back().elements * leaves_.back().bytes);
  }
  for (Tape& tape : tapes_) tape.action.resize(leaves_.size());
}

void GameTapes::set_sink(GameSink* sink) {
  options_.sink = sink;
  for (Tape& tape : tapes_) tape.records = false;
}

void GameTapes::Began(int slot, int group, uint64_t worker_id,
                      uint64_t incarnation, const v1::StepBatch& batch) {
  groups_[slot] = {.worker_id = worker_id,
                   .incarnation = incarnation,
                   .first_row = group * envs_ * agents_};
  for (int env = 0; env < envs_; ++env) BeginGame(slot, env, 0);
  for (const v1::RowError& error : batch.error()) {
    const int env = error.row() / agents_;
    Tape& tape = TapeOf(slot, env);
    tape.plays = tape.records = false;
    if (error.episode() > 0) BeginGame(slot, env, error.episode());
  }
}

void GameTapes::BeginGame(int slot, int env, uint64_t episode) {
  Tape& tape = TapeOf(slot, env);
  tape.plays = true;
  tape.records = options_.sink != nullptr;
  tape.episode = episode;
  tape.game_begun = groups_[slot].acted;
  tape.game.Clear();
  for (int s = 0; s < agents_; ++s) tape.game.add_slot();
  BeginEpisode(slot, env);
}

void GameTapes::BeginEpisode(int slot, int env) {
  const Group& group = groups_[slot];
  Tape& tape = TapeOf(slot, env);
  tape.begun = group.acted;
  tape.gone = 0;
  tape.over = false;
  // Of a game that nobody is handed, the newest will do: it may never be over.
  if (!tape.records) tape.game.clear_episode();
  v1::RecordedEpisode* episode = tape.game.add_episode();
  episode->set_seed(EpisodeSeed(seed_, group.worker_id,
                                group.first_row + env * agents_,
                                group.incarnation, tape.episode));
  for (std::string*& action : tape.action) action = episode->add_action();
}

void GameTapes::Acted(int slot, std::span<const std::string> columns) {
  Group& group = groups_[slot];
  group.in_flight = true;
  ++group.acted;
  if (options_.sink == nullptr) return;
  Tape* const tapes = &TapeOf(slot, 0);
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const RecordedLeaf& leaf = leaves_[i];
    const char* from = columns[i].data();
    const size_t wire = leaf.elements * leaf.wire_bytes;
    for (int env = 0; env < envs_; ++env, from += wire) {
      if (!tapes[env].records) continue;
      std::string* const to = tapes[env].action[i];
      if (leaf.bytes == leaf.wire_bytes) {
        to->append(from, wire);
        continue;
      }
      for (size_t e = 0; e < leaf.elements; ++e) {
        to->push_back(from[e * leaf.wire_bytes]);  // little-endian
      }
    }
  }
  if (group.acted % kLook == 0) LookHowLong(slot);
}

void GameTapes::LookHowLong(int slot) {
  for (int env = 0; env < envs_; ++env) {
    Tape& tape = TapeOf(slot, env);
    if (!tape.records || !TooLong(slot, tape)) continue;
    // Its episodes are counted on, so that the next game is known.
    tape.records = false;
    for (v1::RecordedEpisode& episode : *tape.game.mutable_episode()) {
      for (std::string& action : *episode.mutable_action()) {
        std::string().swap(action);
      }
    }
  }
}

bool GameTapes::TooLong(int slot, const Tape& tape) const {
  const int64_t steps = groups_[slot].acted - tape.game_begun;
  const int64_t more = tape.game.episode_size() - 1;
  return steps * step_bytes_ + more * kEpisodeBytes > max_bytes_;
}

void GameTapes::Stepped(int slot, const v1::StepBatch& batch) {
  groups_[slot].in_flight = false;
  for (const v1::RowError& error : batch.error()) {
    if (error.row() % agents_ != 0) continue;  // of all its slots
    const int env = error.row() / agents_;
    Tape& tape = TapeOf(slot, env);
    if (tape.plays) {
      EndGame(slot, env,
              error.unusable() ? v1::RecordedGame::UNUSABLE
                               : v1::RecordedGame::CRASHED,
              error.message());
    }
    tape.plays = tape.records = false;
    if (error.episode() > 0) BeginGame(slot, env, error.episode());
  }
  for (const v1::EpisodeEnd& end : batch.episode_end()) {
    Tape& tape = TapeOf(slot, end.row() / agents_);
    if (!tape.plays) continue;
    tape.over = tape.over || !end.others_play_on();
    v1::GameSlot* to = tape.game.mutable_slot(end.row() % agents_);
    to->set_ended(true);
    to->set_raw_return(end.raw_return());
    to->set_length(end.length());
    *to->mutable_metric() = end.metric();
  }
  for (const int row : batch.final_row()) {
    const int env = row / agents_;
    Tape& tape = TapeOf(slot, env);
    if (!tape.plays || ++tape.gone < agents_) continue;
    const uint64_t next = tape.episode + 1;
    if (tape.over) {
      EndGame(slot, env, v1::RecordedGame::OVER, "");
      BeginGame(slot, env, next);
    } else {
      CloseEpisode(slot, &tape);
      tape.episode = next;
      BeginEpisode(slot, env);
    }
  }
}

void GameTapes::Lost(int first, int count, absl::string_view why) {
  int handed_on = 0;
  for (int slot = first; slot < first + count; ++slot) {
    for (int env = 0; env < envs_; ++env) {
      Tape& tape = TapeOf(slot, env);
      if (tape.plays && groups_[slot].in_flight && handed_on < kMostLost) {
        ++handed_on;
        EndGame(slot, env, v1::RecordedGame::CRASHED, std::string(why));
      }
      tape.plays = tape.records = false;
    }
    groups_[slot].in_flight = false;
  }
}

void GameTapes::CloseEpisode(int slot, Tape* tape) {
  tape->game.mutable_episode(tape->game.episode_size() - 1)
      ->set_steps(groups_[slot].acted - tape->begun);
}

void GameTapes::EndGame(int slot, int env, v1::RecordedGame::End end,
                        const std::string& why) {
  const Group& group = groups_[slot];
  Tape& tape = TapeOf(slot, env);
  if (!tape.records || TooLong(slot, tape)) return;
  CloseEpisode(slot, &tape);
  v1::RecordedGame* game = &tape.game;
  // An episode that failed before its first step has nothing to show.
  if (game->episode(game->episode_size() - 1).steps() == 0) {
    game->mutable_episode()->RemoveLast();
  }
  if (game->episode_size() == 0) return;
  const int64_t index = int64_t{slot} * envs_ + env;
  double sum = 0;
  int learners = 0;
  for (int s = 0; s < agents_; ++s) {
    if (!LearnsOf(index * agents_ + s, agents_, options_.opponent_slots)) {
      continue;
    }
    sum += game->slot(s).raw_return();
    ++learners;
  }
  game->set_score(learners > 0 ? sum / learners : 0);
  game->set_end(end);
  game->set_error(why);
  game->set_worker_id(group.worker_id);
  game->set_incarnation(group.incarnation);
  game->set_row(group.first_row + env * agents_);
  options_.sink->Take(index, game);
}

}  // namespace flotilla
