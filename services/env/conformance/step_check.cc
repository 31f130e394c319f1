#include "services/env/conformance/step_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/env/conformance/action_draw.h"
#include "services/env/numbers.h"

namespace flotilla {
namespace {

// Ends of a game with lives that come without an EpisodeEnd, at most.
constexpr int kMostLives = 32;
constexpr size_t kMaxMessageText = 512;
constexpr size_t kMaxTracebackText = 8192;

template <typename T>
T At(absl::string_view bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

size_t Hash(absl::string_view bytes) {
  return std::hash<std::string_view>()({bytes.data(), bytes.size()});
}

absl::string_view RowOf(const std::string& array, size_t row, size_t bytes) {
  return absl::string_view(array).substr(row * bytes, bytes);
}

bool Close(double a, double b) {
  return std::abs(a - b) <= 1e-3 * (1 + std::abs(a) + std::abs(b));
}

// Bounds are float32, and so is what environments compute with them.
bool Within(double value, double low, double high) {
  const double room = 1e-5 * (1 + std::abs(value));
  return value >= low - room && value <= high + room;
}

}  // namespace

StepCheck::StepCheck(const v1::EnvSpec& spec, const GroupLayout& layout,
                     Findings* findings, Tally* tally)
    : spec_(spec),
      layout_(layout),
      findings_(*findings),
      tally_(*tally),
      rows_(static_cast<size_t>(layout.groups) * layout.rows),
      trace_(rows_.size()) {}

std::string StepCheck::Where(const v1::StepBatch& step, int r) const {
  return absl::StrCat("row ", step.group() * layout_.rows + r, ", step ",
                      step.seq());
}

bool StepCheck::Check(const v1::StepBatch& step,
                      const std::vector<std::string>& observation) {
  if (!CheckSizes(step) || !CheckFinals(step)) return false;
  CheckErrors(step);
  CheckEnds(step);
  CheckAgents(step);
  for (int r = 0; r < layout_.rows; ++r) {
    if (!failed_[r] && IsActive(step, r)) {
      for (int leaf = 0; leaf < spec_.observation_size(); ++leaf) {
        CheckValues(
            Where(step, r), leaf,
            RowOf(observation[leaf], r, layout_.observation_bytes[leaf]),
            /*final=*/false);
      }
    }
    Follow(step, r, observation);
  }
  return true;
}

bool StepCheck::CheckSizes(const v1::StepBatch& step) {
  const size_t rows = layout_.rows;
  bool fits = true;
  const auto size = [&](Sentence sentence, const char* field,
                        const std::string& bytes, size_t want) {
    if (bytes.size() == want) return findings_.Ok(sentence);
    fits = false;
    findings_.Fail(sentence,
                   absl::StrCat("step.", field, " of group ", step.group(),
                                ", seq ", step.seq(), " has ", bytes.size(),
                                " bytes, want ", want, " (", rows, " rows)"));
  };
  size(Sentence::kReward, "reward", step.reward(), rows * sizeof(float));
  size(Sentence::kFlags, "terminated", step.terminated(), rows);
  size(Sentence::kFlags, "truncated", step.truncated(), rows);
  if (!step.active().empty()) {
    size(Sentence::kActive, "active", step.active(), rows);
  }
  if (!fits) return false;
  for (size_t r = 0; r < rows; ++r) {
    const auto flag = [&](Sentence sentence, const char* field,
                          const std::string& flags) {
      const auto value = static_cast<uint8_t>(flags[r]);
      if (value <= 1) return;
      findings_.Fail(
          sentence,
          absl::StrCat("step.", field, " is ", value, " in ",
                       Where(step, static_cast<int>(r)), ", want 0 or 1"));
    };
    flag(Sentence::kFlags, "terminated", step.terminated());
    flag(Sentence::kFlags, "truncated", step.truncated());
    if (!step.active().empty()) {
      flag(Sentence::kActive, "active", step.active());
      if (layout_.agents == 1 && step.active()[r] == 0) {
        findings_.Fail(Sentence::kActive,
                       absl::StrCat("step.active is 0 in ",
                                    Where(step, static_cast<int>(r)),
                                    ", and an environment has one agent: want "
                                    "1, for each step is its own"));
      }
    }
    const float reward = At<float>(step.reward(), r);
    if (IsUsable(reward)) continue;
    findings_.Fail(
        Sentence::kReward,
        absl::StrCat("the reward of ", Where(step, static_cast<int>(r)), " is ",
                     reward, ", want a finite number up to ", kMaxMagnitude));
  }
  return true;
}

bool StepCheck::CheckFinals(const v1::StepBatch& step) {
  std::vector<int> ended;
  for (int r = 0; r < layout_.rows; ++r) {
    if (step.terminated()[r] || step.truncated()[r]) ended.push_back(r);
  }
  const std::vector<int> listed(step.final_row().begin(),
                                step.final_row().end());
  const auto words = [](const std::vector<int>& rows) {
    std::string text = "[";
    for (size_t i = 0; i < std::min<size_t>(rows.size(), 8); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", ", rows[i]);
    }
    return text + (rows.size() > 8 ? ", ...]" : "]");
  };
  const std::string place =
      absl::StrCat(" in group ", step.group(), ", seq ", step.seq());
  if (listed != ended) {
    findings_.Fail(
        Sentence::kFinalRow,
        absl::StrCat("step.final_row is ", words(listed), place, ", want ",
                     words(ended), ", the rows that ended, ascending"));
    return false;
  }
  if (ended.empty()) {
    if (step.final_observation().leaf_size() == 0) return true;
  } else {
    findings_.Ok(Sentence::kFinalRow);
  }
  const v1::Columns& finals = step.final_observation();
  if (finals.leaf_size() != spec_.observation_size()) {
    findings_.Fail(
        Sentence::kFinalSizes,
        absl::StrCat("step.final_observation has ", finals.leaf_size(),
                     " leaves", place, ", want ", spec_.observation_size()));
    return false;
  }
  for (int i = 0; i < finals.leaf_size(); ++i) {
    const size_t bytes = layout_.observation_bytes[i];
    if (finals.leaf(i).size() != ended.size() * bytes) {
      findings_.Fail(Sentence::kFinalSizes,
                     absl::StrCat("step.final_observation.leaf[", i, "] has ",
                                  finals.leaf(i).size(), " bytes", place,
                                  ", want ", ended.size() * bytes, " (",
                                  ended.size(), " rows of ", bytes, ")"));
      return false;
    }
    for (size_t f = 0; f < ended.size(); ++f) {
      CheckValues("final_observation of " + Where(step, ended[f]), i,
                  RowOf(finals.leaf(i), f, bytes), /*final=*/true);
    }
  }
  if (!ended.empty()) findings_.Ok(Sentence::kFinalSizes);
  return true;
}

void StepCheck::CheckErrors(const v1::StepBatch& step) {
  failed_.assign(static_cast<size_t>(layout_.rows), false);
  const auto fail = [&](const std::string& words) {
    findings_.Fail(
        Sentence::kRowErrors,
        absl::StrCat(words, " in group ", step.group(), ", seq ", step.seq()));
  };
  for (const v1::RowError& error : step.error()) {
    const int r = error.row();
    if (r < 0 || r >= layout_.rows) {
      fail(absl::StrCat("step.error names row ", r, ", want 0 to ",
                        layout_.rows - 1));
      continue;
    }
    findings_.Ok(Sentence::kRowErrors);
    if (failed_[r]) {
      fail(absl::StrCat("step.error names row ", r, " twice"));
    }
    failed_[r] = true;
    ++tally_.errors;
    if (error.message().size() > kMaxMessageText ||
        error.message().find('\n') != std::string::npos) {
      fail(absl::StrCat("the message for row ", r, " has ",
                        error.message().size(), " bytes, want one line of ",
                        kMaxMessageText, " at most"));
    }
    if (error.traceback().size() > kMaxTracebackText) {
      fail(absl::StrCat("the traceback for row ", r, " has ",
                        error.traceback().size(), " bytes, want ",
                        kMaxTracebackText, " at most"));
    }
  }
}

void StepCheck::CheckEnds(const v1::StepBatch& step) {
  end_.assign(static_cast<size_t>(layout_.rows), nullptr);
  const auto fail = [&](int r, const char* what) {
    findings_.Fail(Sentence::kEpisodeEnd,
                   absl::StrCat("an EpisodeEnd of group ", step.group(),
                                ", seq ", step.seq(), " names row ", r, what));
  };
  for (const v1::EpisodeEnd& end : step.episode_end()) {
    const int r = end.row();
    if (r < 0 || r >= layout_.rows) {
      fail(r, absl::StrCat(", want 0 to ", layout_.rows - 1).c_str());
    } else if (failed_[r]) {
      findings_.Fail(Sentence::kRowErrors,
                     absl::StrCat("an EpisodeEnd came for ", Where(step, r),
                                  ", which is in error: want none for what was "
                                  "lost"));
    } else if (!step.terminated()[r] && !step.truncated()[r]) {
      fail(r, ", whose episode did not end");
    } else if (end_[r] != nullptr) {
      fail(r, " twice");
    } else {
      end_[r] = &end;
    }
  }
}

void StepCheck::CheckAgents(const v1::StepBatch& step) {
  over_.assign(static_cast<size_t>(layout_.rows), false);
  for (int e = 0; e < layout_.environments(); ++e) {
    CheckEnvironment(step, e * layout_.agents);
  }
}

void StepCheck::CheckEnvironment(const v1::StepBatch& step, int first) {
  const int end = first + layout_.agents;
  Row* const rows = &rows_[static_cast<size_t>(step.group()) * layout_.rows];
  const auto ended = [&](int r) {
    return step.terminated()[r] != 0 || step.truncated()[r] != 0;
  };
  int failed = 0, gone = 0;
  for (int r = first; r < end; ++r) {
    failed += failed_[r] ? 1 : 0;
    gone += rows[r].gone || ended(r) ? 1 : 0;
  }
  if (failed > 0) {
    if (failed < layout_.agents) {
      findings_.Fail(
          Sentence::kRowErrors,
          absl::StrCat("step.error of group ", step.group(), ", seq ",
                       step.seq(), " names ", failed, " of rows ", first,
                       " to ", end - 1, ", want all slots of the environment"));
    }
    return;  // Follow forgets what was
  }
  const bool over = gone == layout_.agents;
  for (int r = first; r < end; ++r) {
    Row& row = rows[r];
    const auto fail = [&](Sentence sentence, const char* words) {
      findings_.Fail(sentence, absl::StrCat(Where(step, r), words));
    };
    over_[r] = over;
    const bool ends = ended(r);
    if (layout_.agents > 1 && ends) findings_.Ok(Sentence::kAgentEnds);
    if (row.gone && ends) {
      fail(Sentence::kAgentEnds,
           " ends again, and its environment's episode goes on: want one end "
           "at most in each");
    } else if (row.gone && At<float>(step.reward(), r) != 0) {
      fail(Sentence::kAgentEnds,
           " is rewarded, and its episode has ended: want 0 until its "
           "environment's has");
    }
    if (ends && end_[r] != nullptr && end_[r]->others_play_on() == over) {
      fail(Sentence::kAgentEnds,
           over ? " ends with others_play_on, and with it the last of its "
                  "environment does: want false"
                : " ends without others_play_on, and others of its environment "
                  "have not: want true");
    }
    if (!step.active().empty()) findings_.Ok(Sentence::kActive);
    if (!over && (row.gone || ends) && IsActive(step, r)) {
      fail(Sentence::kActive,
           " is active, and its episode has ended before its environment's: "
           "want 0");
    }
  }
}

void StepCheck::CheckValues(const std::string& where, int leaf,
                            absl::string_view row, bool final) {
  const v1::Leaf& spec = spec_.observation(leaf);
  const auto elements = static_cast<size_t>(Elements(spec));
  const auto fail = [&](size_t i, auto value, const std::string& want) {
    findings_.Fail(
        Sentence::kObservationValues,
        absl::StrCat(where, ": observation leaf ", leaf, " (\"", spec.path(),
                     "\"), element ", i, ", is ", value, ", want ", want));
  };
  findings_.Ok(Sentence::kObservationValues);
  for (size_t i = 0; i < elements; ++i) {
    const auto index = static_cast<int64_t>(i);
    const float low = LowOf(spec, index), high = HighOf(spec, index);
    const auto bounds = [&] { return absl::StrCat(low, " to ", high); };
    if (spec.dtype() == v1::FLOAT32) {
      const float value = At<float>(row, i);
      if (!IsUsable(value)) {
        return fail(i, value,
                    absl::StrCat("a finite number up to ", kMaxMagnitude));
      }
      if (!Within(value, low, high)) return fail(i, value, bounds());
      continue;
    }
    const int64_t value = spec.dtype() == v1::UINT8
                              ? int64_t{At<uint8_t>(row, i)}
                              : At<int64_t>(row, i);
    const int64_t values = NumValues(spec, index);
    if (values > 0) {
      if (value < 0 || value >= values) {
        return fail(i, value, absl::StrCat("0 to ", values - 1));
      }
    } else if (!Within(static_cast<double>(value), low, high)) {
      return fail(i, value, bounds());
    }
  }
  if (!final) CheckMask(where, leaf, row);
}

void StepCheck::CheckMask(const std::string& where, int leaf,
                          absl::string_view row) {
  for (int a = 0; a < spec_.action_size(); ++a) {
    if (MaskLeafOf(spec_, a) != leaf) continue;
    const v1::Leaf& action = spec_.action(a);
    const auto fail = [&](const std::string& words) {
      findings_.Fail(
          Sentence::kMask,
          absl::StrCat(where, ": the mask \"", spec_.observation(leaf).path(),
                       "\" ", words));
    };
    findings_.Ok(Sentence::kMask);
    size_t at = 0;
    for (int64_t i = 0; i < Elements(action); ++i) {
      bool allowed = false;
      for (int64_t v = 0; v < NumValues(action, i); ++v, ++at) {
        const auto bit = static_cast<uint8_t>(row[at]);
        if (bit > 1) {
          return fail(
              absl::StrCat("is ", bit, " in element ", at, ", want 0 or 1"));
        }
        allowed = allowed || bit == 1;
      }
      if (!allowed) {
        return fail(absl::StrCat("allows no value of the action's element ", i,
                                 ", want at least one of ",
                                 NumValues(action, i)));
      }
    }
  }
}

void StepCheck::Follow(const v1::StepBatch& step, int r,
                       const std::vector<std::string>& observation) {
  const size_t index = static_cast<size_t>(step.group()) * layout_.rows + r;
  Row& row = rows_[index];
  RowStep& seen = trace_[index].emplace_back();
  seen.active = IsActive(step, r);
  for (size_t i = 0; seen.active && i < observation.size(); ++i) {
    seen.observation.push_back(
        Hash(RowOf(observation[i], r, layout_.observation_bytes[i])));
  }
  const float reward = At<float>(step.reward(), r);
  seen.reward = std::bit_cast<uint32_t>(reward);
  seen.terminated = step.terminated()[r] != 0;
  seen.truncated = step.truncated()[r] != 0;
  seen.error = failed_[r];
  if (seen.error) {
    if (seen.ended()) {
      findings_.Fail(Sentence::kRowErrors,
                     absl::StrCat(Where(step, r),
                                  " is in error and ends an episode: want no "
                                  "transition of it"));
    }
    row = Row();
    row.active = seen.active;  // the next episode may have begun
    return;
  }
  const bool acted = std::exchange(row.active, seen.active);
  if (step.seq() == 0) {
    findings_.Ok(Sentence::kReset);
    if (seen.ended() || end_[r] != nullptr) {
      findings_.Fail(
          Sentence::kReset,
          absl::StrCat(Where(step, r), ": the reset batch ends an episode"));
    }
    return;
  }
  ++row.steps;
  row.game_steps += acted ? 1 : 0;
  row.game_return += reward;
  seen.begins = over_[r];
  const int64_t limit = spec_.max_episode_steps();
  if (limit > 0 && row.steps >= limit && !seen.ended() && !over_[r]) {
    findings_.Fail(Sentence::kStepLimit,
                   absl::StrCat(Where(step, r), ": the episode goes on after ",
                                row.steps, " steps, want an end at ", limit));
  }
  if (seen.ended()) {
    FollowEnd(step, r, &seen, &row);
    row.gone = true;
  }
  if (over_[r]) {
    row.gone = false;
    row.steps = 0;
  }
}

void StepCheck::FollowEnd(const v1::StepBatch& step, int r, RowStep* seen,
                          Row* row) {
  const int64_t limit = spec_.max_episode_steps();
  const std::string where = Where(step, r);
  if (limit > 0 && row->steps == limit) findings_.Ok(Sentence::kStepLimit);
  if (limit > 0 && seen->truncated && row->steps < limit) {
    findings_.Warn(Sentence::kStepLimit,
                   absl::StrCat(where, ": truncated after ", row->steps,
                                " steps, before the limit of ", limit,
                                ": fine only if the environment has another"));
  }
  // What ended, and what begins.
  const int f = static_cast<int>(
      std::find(step.final_row().begin(), step.final_row().end(), r) -
      step.final_row().begin());
  for (int i = 0; i < step.final_observation().leaf_size(); ++i) {
    seen->final_observation.push_back(Hash(RowOf(
        step.final_observation().leaf(i), f, layout_.observation_bytes[i])));
  }
  if (over_[r] && seen->active) {
    ++tally_.ends;
    if (seen->final_observation == seen->observation) {
      ++tally_.finals_like_start;
    }
    std::string start;
    for (const size_t hash : seen->observation) {
      absl::StrAppend(&start, hash, " ");
    }
    if (!tally_.start) tally_.start = Hash(start);
    if (*tally_.start != Hash(start)) tally_.starts_differ = true;
  }

  if (seen->terminated) ++tally_.terminated;
  const v1::EpisodeEnd* end = end_[r];
  if (end != nullptr) {
    if (seen->terminated) ++tally_.terminated_reported;
    seen->game_over = true;
    seen->raw_return = end->raw_return();
    seen->length = end->length();
    CompareEnd(*end, where, row);
    row->game_steps = 0;
    row->game_return = 0;
    row->unreported = 0;
    return;
  }
  if (row->unreported++ == 0) row->first_unreported = row->steps;
  if (seen->truncated && !seen->terminated) {
    findings_.Fail(Sentence::kEpisodeEnd,
                   absl::StrCat(where, ": truncated after ", row->steps,
                                " steps, and no EpisodeEnd came"));
  } else if (row->unreported > kMostLives) {
    findings_.Fail(Sentence::kEpisodeEnd,
                   absl::StrCat(where, ": ", row->unreported,
                                " episodes ended since the last EpisodeEnd"));
  }
}

void StepCheck::CompareEnd(const v1::EpisodeEnd& end, const std::string& where,
                           Row* row) {
  if (row->unreported > 0 && end.length() == row->steps) {
    findings_.Fail(
        Sentence::kEpisodeEnd,
        absl::StrCat(where, ": an earlier episode, of ", row->first_unreported,
                     " steps, ended without an EpisodeEnd, and this "
                     "one's length of ",
                     end.length(), " does not cover it"));
    return;
  }
  findings_.Ok(Sentence::kEpisodeEnd);
  if (end.length() == row->game_steps) {
    findings_.Ok(Sentence::kEpisodeLength);
  } else {
    findings_.Fail(Sentence::kEpisodeLength,
                   absl::StrCat(where, ": EpisodeEnd.length is ", end.length(),
                                ", want ", row->game_steps, " steps"));
  }
  if (!IsUsable(end.raw_return())) {
    findings_.Fail(Sentence::kEpisodeReturn,
                   absl::StrCat(where, ": EpisodeEnd.raw_return is ",
                                end.raw_return(), ", want a finite number"));
  } else if (Close(end.raw_return(), row->game_return)) {
    findings_.Ok(Sentence::kEpisodeReturn);
  } else {
    findings_.Warn(
        Sentence::kEpisodeReturn,
        absl::StrCat(where, ": EpisodeEnd.raw_return is ", end.raw_return(),
                     ", and the rewards' sum ", row->game_return,
                     ": fine only if rewards are clipped or scaled"));
  }
  findings_.Ok(Sentence::kEpisodeMetrics);
  for (const std::string& name : spec_.episode_metric()) {
    const auto metric = end.metric().find(name);
    if (metric == end.metric().end()) {
      findings_.Fail(Sentence::kEpisodeMetrics,
                     absl::StrCat(where, ": EpisodeEnd has no metric \"", name,
                                  "\", which the specification declares"));
    } else if (!IsUsable(metric->second)) {
      findings_.Fail(Sentence::kEpisodeMetrics,
                     absl::StrCat(where, ": metric \"", name, "\" is ",
                                  metric->second, ", want a finite number"));
    }
  }
  for (const auto& [name, value] : end.metric()) {
    if (std::find(spec_.episode_metric().begin(), spec_.episode_metric().end(),
                  name) == spec_.episode_metric().end()) {
      findings_.Warn(
          Sentence::kEpisodeMetrics,
          absl::StrCat(where, ": metric \"", name, "\" of ", value,
                       " is not in episode_metric, and not recorded"));
    }
  }
}

}  // namespace flotilla
