#include "envserver/batch_vector_env.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "services/base/random.h"
#include "services/base/status_macros.h"

namespace flotilla {

absl::StatusOr<std::unique_ptr<BatchVectorEnv>> BatchVectorEnv::Make(
    const Options& options, const MakeBatch& make, Listener* listener) {
  ASSIGN_OR_RETURN(const auto first, make(1));
  v1::EnvSpec spec = first->spec();
  spec.MergeFrom(options.stated);
  spec.set_renders(first->renders());
  ASSIGN_OR_RETURN(GroupLayout layout,
                   MakeGroupLayout(spec, options.num_envs, options.num_groups));
  RETURN_IF_ERROR(first->CheckFits(static_cast<size_t>(layout.groups) *
                                   static_cast<size_t>(layout.environments())));
  const int parts =
      std::clamp(layout.rows / options.rows_of_thread, 1,
                 std::min(options.threads, layout.environments()));
  std::unique_ptr<BatchVectorEnv> result(new BatchVectorEnv(
      options, listener, std::move(spec), std::move(layout)));
  RETURN_IF_ERROR(result->MakeParts(make, parts));
  return result;
}

BatchVectorEnv::BatchVectorEnv(const Options& options, Listener* listener,
                               v1::EnvSpec spec, GroupLayout layout)
    : options_(options),
      listener_(listener),
      spec_(std::move(spec)),
      layout_(std::move(layout)),
      groups_(static_cast<size_t>(layout_.groups)),
      pool_(
          layout_.groups,
          [this](int group, int part) {
            RunPart(groups_[group].reset, &groups_[group].parts[part]);
          },
          [this](int group) { Complete(group); }) {}

absl::Status BatchVectorEnv::MakeParts(const MakeBatch& make, int parts) {
  const auto agents = static_cast<size_t>(layout_.agents);
  const auto environments = static_cast<size_t>(layout_.environments());
  for (int g = 0; g < layout_.groups; ++g) {
    groups_[g].parts = std::vector<Part>(static_cast<size_t>(parts));
    size_t first = 0;  // environment
    for (int p = 0; p < parts; ++p) {
      Part& part = groups_[g].parts[p];
      const size_t next = environments * static_cast<size_t>(p + 1) /
                          static_cast<size_t>(parts);
      const size_t count = next - first;
      ASSIGN_OR_RETURN(part.batch, make(count));
      part.row = first * agents;
      part.seeded = static_cast<size_t>(g * layout_.rows) + part.row;
      part.episode.resize(count);
      part.steps.resize(count);
      part.end.resize(count);
      part.returned.resize(count * agents);
      part.reward.resize(count * agents);
      part.observation.resize(layout_.observation_bytes.size());
      part.action.resize(layout_.action_bytes.size());
      part.final_observation.resize(layout_.observation_bytes.size());
      first = next;
    }
  }
  return pool_.Start(
      parts > 1 ? std::min(options_.threads, parts * layout_.groups) : 1);
}

void BatchVectorEnv::Reset(int group, ObservationBuffers observation,
                           v1::StepBatch* out) {
  Begin(group, nullptr, observation, out);
}

void BatchVectorEnv::Step(int group, const v1::ActionBatch& actions,
                          ObservationBuffers observation, v1::StepBatch* out) {
  Begin(group, &actions, observation, out);
}

void BatchVectorEnv::Begin(int group, const v1::ActionBatch* actions,
                           ObservationBuffers observation, v1::StepBatch* out) {
  Group& g = groups_[group];
  g.reset = actions == nullptr;
  g.out = out;
  for (Part& part : g.parts) {
    const size_t rows = part.reward.size();
    for (size_t i = 0; i < observation.size(); ++i) {
      const size_t bytes = layout_.observation_bytes[i];
      part.observation[i] =
          observation[i].subspan(part.row * bytes, rows * bytes);
    }
    for (size_t i = 0; actions != nullptr && i < part.action.size(); ++i) {
      const size_t bytes = layout_.action_bytes[i];
      part.action[i] =
          std::as_bytes(std::span(actions->action(static_cast<int>(i))))
              .subspan(part.row * bytes, rows * bytes);
    }
  }
  pool_.Begin(group, static_cast<int>(g.parts.size()));
}

void BatchVectorEnv::RunPart(bool reset, Part* part) {
  part->finished.clear();
  for (std::string& leaf : part->final_observation) leaf.clear();
  std::fill(part->reward.begin(), part->reward.end(), 0.0f);
  std::fill(part->end.begin(), part->end.end(), kPlaying);
  if (reset) {
    for (size_t e = 0; e < part->end.size(); ++e) StartEpisode(part, e);
    return;
  }
  part->batch->StepAll(
      {part->action, part->observation, part->reward, part->end});
  for (size_t r = 0; r < part->reward.size(); ++r) {
    part->returned[r] += part->reward[r];
  }
  // A number that nobody can learn from is found by who learns: EnvStream.
  const int64_t limit = spec_.max_episode_steps() > 0
                            ? spec_.max_episode_steps()
                            : std::numeric_limits<int64_t>::max();
  for (size_t e = 0; e < part->end.size(); ++e) {
    ++part->steps[e];
    if (part->end[e] == kPlaying) {
      if (part->steps[e] < limit) continue;
      part->end[e] = kTruncated;
    }
    EndEpisode(part, e);
    StartEpisode(part, e);
  }
}

void BatchVectorEnv::StartEpisode(Part* part, size_t environment) {
  const auto agents = static_cast<size_t>(layout_.agents);
  part->steps[environment] = 0;
  std::fill_n(part->returned.begin() +
                  static_cast<std::ptrdiff_t>(environment * agents),
              agents, 0.0);
  const uint64_t row = part->seeded + environment * agents;
  part->batch->Reset(
      environment,
      EpisodeSeed(options_.seed, options_.worker_id, row, options_.incarnation,
                  part->episode[environment]++),
      part->observation);
}

void BatchVectorEnv::EndEpisode(Part* part, size_t environment) {
  const auto agents = static_cast<size_t>(layout_.agents);
  const size_t first = environment * agents;
  for (size_t i = 0; i < part->observation.size(); ++i) {
    const size_t bytes = layout_.observation_bytes[i];
    const auto rows =
        part->observation[i].subspan(first * bytes, agents * bytes);
    part->final_observation[i].append(
        reinterpret_cast<const char*>(rows.data()), rows.size());
  }
  for (size_t agent = 0; agent < agents; ++agent) {
    v1::EpisodeEnd& end = part->finished.emplace_back();
    end.set_row(static_cast<int>(part->row + first + agent));
    end.set_raw_return(part->returned[first + agent]);
    end.set_length(part->steps[environment]);
    part->batch->GameOver(environment, agent, &end);
  }
}

void BatchVectorEnv::Complete(int group) {
  Group& g = groups_[group];
  v1::StepBatch* out = g.out;
  const auto agents = static_cast<size_t>(layout_.agents);
  const auto rows = static_cast<size_t>(layout_.rows);
  out->mutable_reward()->resize(rows * sizeof(float));
  out->mutable_terminated()->resize(rows);
  out->mutable_truncated()->resize(rows);
  out->clear_final_row();
  out->mutable_final_observation()->clear_leaf();
  out->clear_episode_end();
  out->clear_error();
  out->mutable_active()->clear();
  v1::Columns* finals = out->mutable_final_observation();
  for (Part& part : g.parts) {
    std::memcpy(out->mutable_reward()->data() + part.row * sizeof(float),
                part.reward.data(), part.reward.size() * sizeof(float));
    char* terminated = out->mutable_terminated()->data() + part.row;
    char* truncated = out->mutable_truncated()->data() + part.row;
    for (const EpisodeState end : part.end) {
      for (size_t agent = 0; agent < agents; ++agent) {
        *terminated++ = end == kTerminated;
        *truncated++ = end == kTruncated;
      }
    }
    if (part.finished.empty()) continue;
    for (v1::EpisodeEnd& end : part.finished) {
      out->add_final_row(end.row());
      out->add_episode_end()->Swap(&end);
    }
    for (size_t i = 0; i < part.final_observation.size(); ++i) {
      if (static_cast<size_t>(finals->leaf_size()) <= i) finals->add_leaf();
      finals->mutable_leaf(static_cast<int>(i))
          ->append(part.final_observation[i]);
    }
  }
  listener_->OnGroupDone(group, absl::ZeroDuration());
}

namespace {

class OneOfBatch final : public MultiAgentEnvironment {
 public:
  explicit OneOfBatch(std::unique_ptr<BatchEnvironment> batch)
      : batch_(std::move(batch)) {}

  const v1::EnvSpec& spec() const override { return batch_->spec(); }

  absl::Status ResetSlots(uint64_t seed, std::span<Slot> slots) override {
    Prepare(slots);
    // What is asked for after this is what was before it.
    if (began_) {
      for (size_t s = 0; s < slots.size(); ++s) {
        ended_[s].Clear();
        batch_->GameOver(0, s, &ended_[s]);
      }
    }
    began_ = true;
    batch_->Reset(0, seed, observation_);
    Deliver(slots);
    return absl::OkStatus();
  }

  absl::Status StepSlots(std::span<Slot> slots) override {
    for (size_t s = 0; s < slots.size(); ++s) {
      for (size_t i = 0; i < action_.size(); ++i) {
        const auto from = slots[s].action[i];
        std::memcpy(actions_[i].data() + s * from.size(), from.data(),
                    from.size());
      }
    }
    std::fill(reward_.begin(), reward_.end(), 0.0f);
    EpisodeState end = kPlaying;
    batch_->StepAll({action_, observation_, reward_, std::span(&end, 1)});
    Deliver(slots);
    for (size_t s = 0; s < slots.size(); ++s) {
      slots[s].outcome.reward = reward_[s];
      slots[s].outcome.terminated = end == kTerminated;
      slots[s].outcome.truncated = end == kTruncated;
    }
    return absl::OkStatus();
  }

  bool SlotGameOver(size_t slot, v1::EpisodeEnd* end) override {
    // Metrics alone: the statistics are counted outside.
    *end->mutable_metric() = ended_[slot].metric();
    return true;
  }

  bool renders() const override { return batch_->renders(); }
  v1::Frame Render() const override { return batch_->Render(0); }

 private:
  // Memory for the columns, of as many rows as there are slots.
  void Prepare(std::span<Slot> slots) {
    if (!observations_.empty()) return;
    for (const auto leaf : slots[0].observation) {
      observations_.emplace_back(leaf.size() * slots.size());
    }
    for (const v1::Leaf& leaf : spec().action()) {
      size_t bytes = leaf.dtype() == v1::INT64     ? sizeof(int64_t)
                     : leaf.dtype() == v1::FLOAT32 ? sizeof(float)
                                                   : 1;
      for (const int64_t dim : leaf.shape()) bytes *= static_cast<size_t>(dim);
      actions_.emplace_back(bytes * slots.size());
    }
    observation_.assign(observations_.begin(), observations_.end());
    action_.assign(actions_.begin(), actions_.end());
    reward_.resize(slots.size());
    ended_.resize(slots.size());
  }

  void Deliver(std::span<Slot> slots) const {
    for (size_t s = 0; s < slots.size(); ++s) {
      for (size_t i = 0; i < observation_.size(); ++i) {
        const auto to = slots[s].observation[i];
        std::memcpy(to.data(), observations_[i].data() + s * to.size(),
                    to.size());
      }
    }
  }

  const std::unique_ptr<BatchEnvironment> batch_;
  bool began_ = false;
  std::vector<std::vector<std::byte>> observations_, actions_;
  std::vector<std::span<std::byte>> observation_;
  std::vector<std::span<const std::byte>> action_;
  std::vector<float> reward_;
  std::vector<v1::EpisodeEnd> ended_;
};

}  // namespace

std::unique_ptr<MultiAgentEnvironment> AsMultiAgent(
    std::unique_ptr<BatchEnvironment> batch) {
  return std::make_unique<OneOfBatch>(std::move(batch));
}

}  // namespace flotilla
