#ifndef FLOTILLA_TESTS_SERVICES_ENV_DEFECTS_H_
#define FLOTILLA_TESTS_SERVICES_ENV_DEFECTS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "services/env/conformance/findings.h"
#include "tests/services/env/conformance_servers.h"
#include "tests/services/env/defective_service.h"

namespace flotilla {

// Of replies that are steps after the reset.
using SpoilStep = std::function<void(v1::StepBatch*)>;

inline std::function<Defect()> Steps(SpoilStep spoil) {
  return [spoil] {
    Defect defect;
    defect.reply = [spoil](v1::PlayReply reply) {
      if (reply.has_step()) spoil(reply.mutable_step());
      return std::vector<v1::PlayReply>{std::move(reply)};
    };
    return defect;
  };
}

inline std::function<Defect()> Later(SpoilStep spoil) {
  return Steps([spoil](v1::StepBatch* step) {
    if (step->seq() > 0) spoil(step);
  });
}

inline std::function<Defect()> Welcomes(
    std::function<void(v1::Welcome*)> spoil) {
  return [spoil] {
    Defect defect;
    defect.reply = [spoil](v1::PlayReply reply) {
      if (reply.has_welcome()) spoil(reply.mutable_welcome());
      return std::vector<v1::PlayReply>{std::move(reply)};
    };
    return defect;
  };
}

inline std::function<Defect()> Requests(
    std::function<void(v1::PlayRequest*)> spoil) {
  return [spoil] {
    Defect defect;
    defect.request = spoil;
    return defect;
  };
}

inline std::function<Defect()> Replies(
    std::function<std::vector<v1::PlayReply>(v1::PlayReply)> reply) {
  return [reply] {
    Defect defect;
    defect.reply = reply;
    return defect;
  };
}

inline std::function<Defect()> Ends(
    std::function<grpc::Status(grpc::Status)> end) {
  return [end] {
    Defect defect;
    defect.end = end;
    return defect;
  };
}

inline void SetFloat(std::string* bytes, size_t index, float value) {
  if (bytes->size() < (index + 1) * sizeof(value)) return;
  std::memcpy(bytes->data() + index * sizeof(value), &value, sizeof(value));
}

inline std::string* Leaf(v1::StepBatch* step, int leaf = 0) {
  return step->has_inline_() ? step->mutable_inline_()->mutable_leaf(leaf)
                             : step->mutable_reward();
}

// The observation of each row that ended becomes what ended it, or the other
// way round.
inline void Splice(v1::StepBatch* step, bool into_final) {
  if (!step->has_inline_()) return;
  const auto rows = step->terminated().size();
  for (int f = 0; f < step->final_row_size(); ++f) {
    std::string* now = Leaf(step);
    std::string* final = step->mutable_final_observation()->mutable_leaf(0);
    const size_t bytes = now->size() / rows;
    char* const next = now->data() + step->final_row(f) * bytes;
    char* const last = final->data() + f * bytes;
    std::memcpy(into_final ? last : next, into_final ? next : last, bytes);
  }
}

struct Case {
  Sentence sentence;  // which it breaks
  std::function<Defect()> make;
  const char* env_id = "CartPole-v1";
  // Short only where the defect is silence.
  absl::Duration timeout = absl::Seconds(20);
  Verdict verdict = Verdict::kFailed;
};

constexpr absl::Duration kShort = absl::Seconds(1);

inline const std::map<std::string, Case>& Cases() {
  using S = Sentence;
  static const auto* cases = new std::map<std::string, Case>{
      // Hellos.
      {"VersionNotRefused",
       {S::kProtocolVersion, Requests([](v1::PlayRequest* r) {
          if (r->has_hello()) r->mutable_hello()->set_protocol_version(1);
        })}},
      {"UnknownIdTaken",
       {S::kUnknownId, Requests([](v1::PlayRequest* r) {
          if (r->has_hello()) r->mutable_hello()->set_env_id("CartPole-v1");
        })}},
      {"UnknownIdHasAnotherCode",
       {S::kUnknownId, Ends([](grpc::Status s) {
          return s.error_code() == grpc::NOT_FOUND
                     ? grpc::Status(grpc::INTERNAL, "KeyError")
                     : s;
        })}},
      {"NoEnvironmentsTaken",
       {S::kNumEnvs, Requests([](v1::PlayRequest* r) {
          if (r->has_hello() && r->hello().num_envs() < 1) {
            r->mutable_hello()->set_num_envs(2);
          }
        })}},
      {"UnevenGroupsTaken",
       {S::kNumGroups, Requests([](v1::PlayRequest* r) {
          if (!r->has_hello()) return;
          const v1::Hello& hello = r->hello();
          if (hello.num_groups() < 1 ||
              hello.num_envs() % hello.num_groups() != 0) {
            r->mutable_hello()->set_num_groups(1);
          }
        })}},
      {"UndeclaredOptionTaken",
       {S::kOptionUnknown, Requests([](v1::PlayRequest* r) {
          if (r->has_hello()) {
            r->mutable_hello()->mutable_options()->clear_kwargs();
          }
        }), "Masked"}},
      {"SecondHelloTakenForAStart",
       {S::kMessageOrder, [] {
          Defect defect;
          defect.request = [n = std::make_shared<int>(0)](v1::PlayRequest* r) {
            if ((*n)++ == 1) r->mutable_start();
          };
          return defect;
        }}},
      // Welcomes.
      {"NoWelcome",
       {S::kWelcome, Replies([](v1::PlayReply reply) {
          if (reply.has_welcome()) return std::vector<v1::PlayReply>{};
          return std::vector<v1::PlayReply>{reply};
        }), "CartPole-v1", kShort}},
      {"ResetBeforeTheWelcome",
       {S::kWelcome, Replies([](v1::PlayReply reply) {
          if (!reply.has_welcome()) return std::vector<v1::PlayReply>{reply};
          v1::PlayReply step;
          step.mutable_step();
          return std::vector<v1::PlayReply>{step, reply};
        })}},
      {"NextStepMode",
       {S::kWelcome, Welcomes([](v1::Welcome* w) {
          w->set_autoreset_mode("next_step");
        })}},
      {"OtherVersion",
       {S::kWelcome,
        Welcomes([](v1::Welcome* w) { w->set_protocol_version(2); })}},
      {"StepBeforeTheStart",
       {S::kSilentUntilStart, Replies([](v1::PlayReply reply) {
          std::vector<v1::PlayReply> replies = {reply};
          if (reply.has_welcome()) replies.emplace_back().mutable_step();
          return replies;
        })}},
      {"LeavesUnsorted",
       {S::kLeavesSorted, Welcomes([](v1::Welcome* w) {
          w->mutable_spec()->mutable_observation()->SwapElements(0, 1);
        }), "Masked"}},
      {"LeafTwice",
       {S::kLeavesSorted, Welcomes([](v1::Welcome* w) {
          *w->mutable_spec()->add_observation() = w->spec().observation(0);
        })}},
      {"NoDType",
       {S::kLeafShapes, Welcomes([](v1::Welcome* w) {
          w->mutable_spec()->mutable_action(0)->clear_dtype();
        })}},
      {"NegativeDimension",
       {S::kLeafShapes, Welcomes([](v1::Welcome* w) {
          w->mutable_spec()->mutable_observation(0)->set_shape(0, -4);
        })}},
      {"HugeLeaf",
       {S::kLeafShapes, Welcomes([](v1::Welcome* w) {
          for (int i = 0; i < 8; ++i) {
            w->mutable_spec()->mutable_observation(0)->add_shape(1 << 30);
          }
        })}},
      {"NoObservation",
       {S::kLeafShapes, Welcomes([](v1::Welcome* w) {
          w->mutable_spec()->clear_observation();
        })}},
      {"TooFewRanges",
       {S::kLeafValues, Welcomes([](v1::Welcome* w) {
          w->mutable_spec()->mutable_action(0)->mutable_num_values_each()
              ->Truncate(1);
        }), "Masked"}},
      {"BoundsAcross",
       {S::kLeafBounds, Welcomes([](v1::Welcome* w) {
          w->mutable_spec()->mutable_observation(0)->set_low(0, 5);
        })}},
      {"MaskOfAnotherPath",
       {S::kMaskPath, Welcomes([](v1::Welcome* w) {
          w->mutable_spec()->mutable_action(0)->set_mask_path("masks");
        }), "Masked"}},
      {"MetricsUnsorted",
       {S::kEpisodeMetric, Welcomes([](v1::Welcome* w) {
          w->mutable_spec()->mutable_episode_metric()->SwapElements(0, 1);
        }), "Maze"}},
      {"DefaultIsNoJson",
       {S::kOptionsSorted, Welcomes([](v1::Welcome* w) {
          w->mutable_spec()->mutable_option(0)->set_default_json("8x8");
        }), "Masked"}},
      {"NegativeLimit",
       {S::kSpecLimits, Welcomes([](v1::Welcome* w) {
          w->mutable_spec()->set_max_episode_steps(-1);
        })}},
      {"GetSpecSaysAnother",
       {S::kGetSpec, [] {
          Defect defect;
          defect.get_spec = [](v1::GetSpecResponse* r) {
            r->mutable_spec()->set_max_episode_steps(7);
          };
          return defect;
        }}},
      {"SessionWithoutSteps",
       {S::kSession, [] {
          Defect defect;
          defect.get_spec = [](v1::GetSpecResponse* r) {
            for (v1::PlaySession& s : *r->mutable_session()) s.set_steps(0);
          };
          return defect;
        }}},
      {"IdNotListed",
       {S::kListsIds, [] {
          Defect defect;
          defect.get_spec = [](v1::GetSpecResponse* r) { r->clear_env_id(); };
          return defect;
        }, "CartPole-v1", absl::Seconds(20), Verdict::kWarning}},
      // Turns.
      {"ResetOfOneGroupMissing",
       {S::kReset, Replies([](v1::PlayReply reply) {
          if (reply.has_step() && reply.step().seq() == 0 &&
              reply.step().group() == 1) {
            return std::vector<v1::PlayReply>{};
          }
          return std::vector<v1::PlayReply>{reply};
        }), "CartPole-v1", kShort}},
      {"ResetIsStepOne",
       {S::kReset, Steps([](v1::StepBatch* s) { s->set_seq(s->seq() + 1); })}},
      {"StepWithoutActions",
       {S::kOneStep, Replies([](v1::PlayReply reply) {
          std::vector<v1::PlayReply> replies = {reply};
          if (reply.has_step() && reply.step().seq() == 0 &&
              reply.step().group() == 1) {
            replies.push_back(reply);
            replies[1].mutable_step()->set_seq(1);
          }
          return replies;
        })}},
      {"StepTwice",
       {S::kOneStep, Replies([](v1::PlayReply reply) {
          const bool twice = reply.has_step() && reply.step().seq() == 5;
          return std::vector<v1::PlayReply>(twice ? 2 : 1, reply);
        })}},
      {"StepNeverComes",
       {S::kInTime, Replies([](v1::PlayReply reply) {
          const bool lost = reply.has_step() && reply.step().seq() == 5;
          return std::vector<v1::PlayReply>(lost ? 0 : 1, reply);
        }), "CartPole-v1", kShort}},
      {"SeqSkipped",
       {S::kSeq, Later([](v1::StepBatch* s) {
          if (s->seq() > 3) s->set_seq(s->seq() + 1);
        })}},
      {"GroupMixedUp",
       {S::kGroups,
        Later([](v1::StepBatch* s) { s->set_group(1 - s->group()); })}},
      {"GroupThatIsNone",
       {S::kGroups,
        Later([](v1::StepBatch* s) { s->set_group(s->group() - 1); })}},
      {"RowsCountInTheGroup",
       {S::kRowsOverAll, Requests([](v1::PlayRequest* r) {
          if (r->has_hello() && r->hello().num_groups() == 1) {
            r->mutable_hello()->set_worker_id(77);
          }
        })}},
      // Steps.
      {"NoObservations",
       {S::kPayload, Later([](v1::StepBatch* s) { s->clear_payload(); })}},
      {"SlotWithoutARegion",
       {S::kPayload, Later([](v1::StepBatch* s) { s->set_slot(0); })}},
      {"ObservationTooShort",
       {S::kObservationSizes, Later([](v1::StepBatch* s) {
          if (s->has_inline_()) Leaf(s)->pop_back();
        })}},
      {"LeafTooMany",
       {S::kObservationSizes, Later([](v1::StepBatch* s) {
          if (s->has_inline_()) s->mutable_inline_()->add_leaf("x");
        })}},
      {"NotANumber",
       {S::kObservationValues, Later([](v1::StepBatch* s) {
          SetFloat(Leaf(s), 2, std::numeric_limits<float>::quiet_NaN());
        })}},
      {"OutOfBounds",
       {S::kObservationValues,
        Later([](v1::StepBatch* s) { SetFloat(Leaf(s), 0, 99); })}},
      {"RewardNotANumber",
       {S::kReward, Later([](v1::StepBatch* s) {
          SetFloat(s->mutable_reward(), 1,
                   std::numeric_limits<float>::infinity());
        })}},
      {"RewardIsADouble",
       {S::kReward, Later([](v1::StepBatch* s) {
          s->mutable_reward()->resize(s->reward().size() * 2);
        })}},
      {"FlagOfTwo",
       {S::kFlags, Later([](v1::StepBatch* s) {
          for (char& flag : *s->mutable_terminated()) flag *= 2;
        })}},
      {"FlagsTooShort",
       {S::kFlags,
        Later([](v1::StepBatch* s) { s->mutable_truncated()->clear(); })}},
      {"MaskForbidsAll",
       {S::kMask, Later([](v1::StepBatch* s) {
          if (s->has_inline_()) std::memset(Leaf(s)->data(), 0, 2);
        }), "Masked"}},
      {"MaskOfSevens",
       {S::kMask, Later([](v1::StepBatch* s) {
          if (!s->has_inline_()) return;
          for (char& bit : *Leaf(s)) bit *= 7;
        }), "Masked"}},
      // Agents.
      {"AgentsBelowZero",
       {S::kAgents,
        Welcomes([](v1::Welcome* w) { w->mutable_spec()->set_agents(-1); }),
        "Team"}},
      {"RowsThatMakeNoEnvironmentsTaken",
       {S::kAgents, Requests([](v1::PlayRequest* r) {
          if (!r->has_hello() || r->hello().num_envs() != 4) return;
          r->mutable_hello()->set_num_envs(3);
        }), "Team"}},
      {"ActiveOfTwo",
       {S::kActive, Later([](v1::StepBatch* s) {
          for (char& flag : *s->mutable_active()) flag *= 2;
        }), "Team"}},
      {"ActiveTooShort",
       {S::kActive,
        Later([](v1::StepBatch* s) { s->set_active("\1"); }), "Team"}},
      {"OneAgentWaits",
       {S::kActive, Later([](v1::StepBatch* s) {
          s->mutable_active()->assign(s->terminated().size(), '\0');
        })}},
      {"GoneAndActive",
       {S::kActive, Later([](v1::StepBatch* s) { s->clear_active(); }),
        "Team"}},
      {"NobodyPlaysOn",
       {S::kAgentEnds, Later([](v1::StepBatch* s) {
          for (v1::EpisodeEnd& end : *s->mutable_episode_end()) {
            end.set_others_play_on(false);
          }
        }), "Team"}},
      {"OthersAlwaysPlayOn",
       {S::kAgentEnds, Later([](v1::StepBatch* s) {
          for (v1::EpisodeEnd& end : *s->mutable_episode_end()) {
            end.set_others_play_on(true);
          }
        }), "Connect4"}},
      {"GoneEndsAgain",
       {S::kAgentEnds, [] {
          Defect defect;
          defect.reply = [gone = std::make_shared<std::map<int, int>>()](
                             v1::PlayReply reply) {
            if (!reply.has_step()) {
              return std::vector<v1::PlayReply>{std::move(reply)};
            }
            v1::StepBatch* s = reply.mutable_step();
            if (s->has_inline_() &&
                s->final_row_size() == 0 && gone->contains(s->group()) &&
                s->active().size() > static_cast<size_t>((*gone)[s->group()]) &&
                s->active()[(*gone)[s->group()]] == 0) {
              const int row = (*gone)[s->group()];
              (*s->mutable_terminated())[row] = 1;
              s->add_final_row(row);
              s->mutable_final_observation()->add_leaf()->resize(8);
            }
            for (const v1::EpisodeEnd& end : s->episode_end()) {
              if (end.others_play_on()) (*gone)[s->group()] = end.row();
            }
            return std::vector<v1::PlayReply>{std::move(reply)};
          };
          return defect;
        }, "Team"}},
      {"GoneIsRewarded",
       {S::kAgentEnds, Later([](v1::StepBatch* s) {
          for (size_t r = 0; r < s->reward().size() / 4; ++r) {
            SetFloat(s->mutable_reward(), r, 1);
          }
        }), "Team"}},
      {"LengthOfTheEnvironment",
       {S::kEpisodeLength, Later([](v1::StepBatch* s) {
          for (v1::EpisodeEnd& end : *s->mutable_episode_end()) {
            end.set_length(2 * end.length());
          }
        }), "Connect4"}},
      {"OneSlotFails",
       {S::kRowErrors, Later([](v1::StepBatch* s) {
          s->add_error()->set_row(1);
        }), "Connect4"}},
      {"IdleActionsJudged",
       {S::kActionIdle, Requests([](v1::PlayRequest* r) {
          if (!r->has_actions() || r->actions().action_size() != 1) return;
          const std::string& column = r->actions().action(0);
          for (size_t i = 0; i + 8 <= column.size(); i += 8) {
            int64_t value;
            std::memcpy(&value, column.data() + i, 8);
            if (value > 6) r->mutable_actions()->clear_action();
            if (value > 6) return;
          }
        }), "Connect4"}},
      // Ends.
      {"FinalRowsUnordered",
       {S::kFinalRow, Later([](v1::StepBatch* s) {
          std::reverse(s->mutable_final_row()->begin(),
                       s->mutable_final_row()->end());
        })}},
      {"FinalRowOfARowThatGoesOn",
       {S::kFinalRow, Later([](v1::StepBatch* s) { s->add_final_row(1); })}},
      {"FinalObservationMissing",
       {S::kFinalSizes, Later([](v1::StepBatch* s) {
          s->clear_final_observation();
        })}},
      {"FinalObservationOfAllRows",
       {S::kFinalSizes, Later([](v1::StepBatch* s) {
          for (std::string& leaf :
               *s->mutable_final_observation()->mutable_leaf()) {
            leaf += leaf;
          }
        })}},
      {"FinalObservationIsTheNext",
       {S::kFinalObservation,
        Later([](v1::StepBatch* s) { Splice(s, /*into_final=*/true); })}},
      {"EpisodeIsSpliced",
       {S::kEpisodeStart,
        Later([](v1::StepBatch* s) { Splice(s, /*into_final=*/false); })}},
      {"NoEpisodeEnd",
       {S::kEpisodeEnd, Later([](v1::StepBatch* s) { s->clear_episode_end(); })}},
      {"EverySecondEpisodeEnd",
       {S::kEpisodeEnd, [] {
          Defect defect;
          defect.reply = [n = std::make_shared<int>(0)](v1::PlayReply reply) {
            if (reply.has_step() && reply.step().episode_end_size() > 0 &&
                (*n)++ % 2 == 0) {
              reply.mutable_step()->clear_episode_end();
            }
            return std::vector<v1::PlayReply>{reply};
          };
          return defect;
        }}},
      {"EpisodeEndOfARowThatGoesOn",
       {S::kEpisodeEnd, Later([](v1::StepBatch* s) {
          if (s->episode_end_size() == 0) s->add_episode_end()->set_length(1);
        })}},
      {"LengthOfOneMore",
       {S::kEpisodeLength, Later([](v1::StepBatch* s) {
          for (v1::EpisodeEnd& end : *s->mutable_episode_end()) {
            end.set_length(end.length() + 1);
          }
        })}},
      {"ReturnOfAnother",
       {S::kEpisodeReturn, Later([](v1::StepBatch* s) {
          for (v1::EpisodeEnd& end : *s->mutable_episode_end()) {
            end.set_raw_return(-3);
          }
        }), "CartPole-v1", absl::Seconds(20), Verdict::kWarning}},
      {"MetricMissing",
       {S::kEpisodeMetrics, Later([](v1::StepBatch* s) {
          for (v1::EpisodeEnd& end : *s->mutable_episode_end()) {
            end.mutable_metric()->erase("spl");
          }
        }), "Maze"}},
      {"TruncatedTooLate",
       {S::kStepLimit, [] {
          Defect defect;
          auto limit = std::make_shared<int64_t>(0);
          defect.request = [limit](v1::PlayRequest* r) {
            if (!r->has_hello()) return;
            v1::EnvOptions* options = r->mutable_hello()->mutable_options();
            *limit = options->max_episode_steps();
            if (*limit > 0) options->set_max_episode_steps(*limit + 2);
          };
          defect.reply = [limit](v1::PlayReply reply) {
            if (reply.has_welcome() && *limit > 0) {
              reply.mutable_welcome()->mutable_spec()->set_max_episode_steps(
                  *limit);
            }
            return std::vector<v1::PlayReply>{reply};
          };
          return defect;
        }}},
      {"LimitIgnored",
       {S::kLimitOption, Requests([](v1::PlayRequest* r) {
          if (r->has_hello()) {
            r->mutable_hello()->mutable_options()->clear_max_episode_steps();
          }
        })}},
      {"ErrorOfNoRow",
       {S::kRowErrors, Later([](v1::StepBatch* s) {
          s->add_error()->set_row(2);
        })}},
      {"ErrorTwice",
       {S::kRowErrors, Later([](v1::StepBatch* s) {
          for (int i = 0; i < 2; ++i) s->add_error()->set_message("lost");
        })}},
      {"ErrorOfManyLines",
       {S::kRowErrors, Later([](v1::StepBatch* s) {
          s->add_error()->set_message("Traceback\n  File");
        })}},
      // Seeds.
      {"NotDeterministic",
       {S::kDeterministic, [] {
          static std::atomic<int> streams = 0;
          Defect defect;
          defect.reply = [n = ++streams](v1::PlayReply reply) {
            if (reply.has_step()) {
              SetFloat(Leaf(reply.mutable_step()), 1,
                       1 + 0.001f * static_cast<float>(n));
            }
            return std::vector<v1::PlayReply>{reply};
          };
          return defect;
        }}},
      {"SeedsIgnored",
       {S::kSeeds, Requests([](v1::PlayRequest* r) {
          if (!r->has_hello()) return;
          r->mutable_hello()->set_seed(9);
          r->mutable_hello()->set_worker_id(9);
        }), "CartPole-v1", absl::Seconds(20), Verdict::kWarning}},
      // Actions.
      {"ShortActionsTaken",
       {S::kActionSize, Requests([](v1::PlayRequest* r) {
          if (r->has_actions() && r->actions().action_size() > 0) {
            r->mutable_actions()->mutable_action(0)->resize(16);
          }
        })}},
      {"RefusalNamesNothing",
       {S::kActionSize, Ends([](grpc::Status s) {
          return s.error_code() == grpc::INVALID_ARGUMENT
                     ? grpc::Status(s.error_code(), "bad request")
                     : s;
        })}},
      {"MoreLeavesTaken",
       {S::kActionLeaves, Requests([](v1::PlayRequest* r) {
          if (r->has_actions() && r->actions().action_size() > 1) {
            r->mutable_actions()->mutable_action()->RemoveLast();
          }
        })}},
      {"AnySeqTaken",
       {S::kActionSeq, [] {
          Defect defect;
          defect.request =
              [n = std::make_shared<std::map<int, uint64_t>>()](
                  v1::PlayRequest* r) {
                if (!r->has_actions()) return;
                r->mutable_actions()->set_seq((*n)[r->actions().group()]++);
              };
          return defect;
        }}},
      {"AnyGroupTaken",
       {S::kActionGroup, Requests([](v1::PlayRequest* r) {
          if (r->has_actions() && r->actions().group() < 0) {
            r->mutable_actions()->set_group(0);
          }
        })}},
      {"OutOfRangeActionsTaken",
       {S::kActionRange, Requests([](v1::PlayRequest* r) {
          if (!r->has_actions() || r->actions().action_size() != 1) return;
          for (char& c : *r->mutable_actions()->mutable_action(0)) c &= 1;
        })}},
      // Shared memory.
      {"RegionIgnored",
       {S::kSharedSlot, Requests([](v1::PlayRequest* r) {
          if (r->has_start()) r->mutable_start()->clear_shared_memory();
        })}},
      {"SlotOfAnotherGroup",
       {S::kSharedSlot, Steps([](v1::StepBatch* s) {
          if (!s->has_inline_()) s->set_slot(1 - s->slot());
        })}},
      {"OtherRewardsThroughTheRegion",
       {S::kSharedMemory, Later([](v1::StepBatch* s) {
          if (!s->has_inline_()) SetFloat(s->mutable_reward(), 0, 0.5f);
        })}},
      {"WrongRegionTaken",
       {S::kSharedRegion, Requests([](v1::PlayRequest* r) {
          if (r->has_start() && r->start().has_shared_memory()) {
            r->mutable_start()->mutable_shared_memory()->set_slot_bytes(64);
          }
        })}},
      {"RingOfAnotherSize",
       {S::kRing, Requests([](v1::PlayRequest* r) {
          if (r->has_start() && r->start().shared_memory().ring_bytes() > 0) {
            r->mutable_start()->mutable_shared_memory()->set_ring_bytes(64);
          }
        })}},
      // Seats.
      {"TwoPlayers",
       {S::kSecondPlayer, [] {
          // Streams and GetSpec take turns: who comes next is alone.
          static auto* others = new std::array<Server, 3>;
          static std::atomic<size_t> streams = 0;
          Defect defect;
          defect.backend = (*others)[streams++ % 3].Channel();
          return defect;
        }}},
      {"SecondPlayerIsNotTold",
       {S::kSecondPlayer, Ends([](grpc::Status s) {
          return s.error_code() == grpc::RESOURCE_EXHAUSTED
                     ? grpc::Status(s.error_code(), "busy")
                     : s;
        })}},
      {"OlderNotAborted",
       {S::kTakeover, Ends([](grpc::Status s) {
          return s.error_code() == grpc::ABORTED ? grpc::Status::OK : s;
        })}},
      {"NewerRefused",
       {S::kTakeover, Requests([](v1::PlayRequest* r) {
          if (r->has_hello() && r->hello().seed() == 1) {
            r->mutable_hello()->set_incarnation(1);
          }
        }), "CartPole-v1", kShort}},
      {"HalfCloseIsAnError",
       {S::kHalfClose, Ends([](grpc::Status s) {
          return s.ok() ? grpc::Status(grpc::UNKNOWN, "StopIteration") : s;
        })}},
      {"CancelledKeepsTheSeat",
       {S::kCancel, [] {
          Defect defect;
          defect.ignores_cancel = true;
          return defect;
        }, "CartPole-v1", kShort}},
  };
  return *cases;
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_ENV_DEFECTS_H_
