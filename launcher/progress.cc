#include "launcher/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/numbers.h"
#include "launcher/text_layout.h"
#include "services/base/config.h"
#include "services/base/config_change.h"
#include "services/base/member_state.h"
#include "services/base/printable.h"

namespace flotilla {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(200);
constexpr absl::Duration kPlainInterval = absl::Seconds(5);
constexpr size_t kFewestCells = 8, kMostCells = 24;  // of a bar
constexpr int kMostRanks = 16;                       // lines of a block
constexpr size_t kHang = 6;  // of lines that go on below

double Fraction(const v1::Status& status, const ProgressFacts& facts) {
  if (facts.total_env_steps <= 0) return 0;
  return std::clamp(static_cast<double>(status.global_step()) /
                        static_cast<double>(facts.total_env_steps),
                    0.0, 1.0);
}

// The run may have been made longer or shorter in flight.
ProgressFacts AsChanged(ProgressFacts facts, const v1::Status& status) {
  if (facts.total_env_steps <= 0) return facts;
  for (const v1::Change& change : status.change()) {
    if (!change.refused().empty() || change.update() == 0) continue;
    for (const std::string& text : change.override()) {
      v1::RunConfig config;
      if (!ApplyOverride(text, &config).ok()) continue;
      if (config.has_total_env_steps()) {
        facts.total_env_steps = config.total_env_steps();
      } else if (config.has_total_updates() && facts.steps_an_update > 0) {
        facts.total_env_steps = config.total_updates() * facts.steps_an_update;
      }
    }
  }
  return facts;
}

// Before the learners of a resumed run have said where they are, it is where it
// was.
v1::Status NotBefore(v1::Status status, const ProgressFacts& facts) {
  status.set_global_step(std::max(status.global_step(), facts.first_step));
  status.set_update(std::max(status.update(), facts.first_update));
  for (v1::LearnerStatus& learner : *status.mutable_learner()) {
    learner.set_update(std::max(learner.update(), facts.first_update));
  }
  return status;
}

// "3.2k steps/s  return 187.3  eval 475.0 ..." of what there is to say.
std::vector<std::string> Measurements(const v1::Status& status,
                                      const ProgressFacts& facts) {
  std::vector<std::string> parts;
  const double rate = status.steps_per_second();
  if (rate > 0) parts.push_back(absl::StrCat(Brief(rate), " steps/s"));
  const int64_t left = facts.total_env_steps - status.global_step();
  if (rate > 0 && left > 0) {
    parts.push_back(
        absl::StrCat("ETA ", BriefSeconds(static_cast<double>(left) / rate)));
  }
  // 0 is what there is before the first episode has ended, too.
  if (status.mean_return() != 0) {
    parts.push_back(absl::StrFormat("return %.1f", status.mean_return()));
  }
  if (status.evaluation().round() > 0) {
    parts.push_back(
        absl::StrFormat("eval %.1f", status.evaluation().mean_return()));
  }
  if (status.learner_restarts() > 0) {
    parts.push_back(
        absl::StrCat(status.learner_restarts(), " learner restarts"));
  }
  if (status.env_worker_restarts() > 0) {
    parts.push_back(
        absl::StrCat(status.env_worker_restarts(), " env restarts"));
  }
  if (status.failed_rows() > 0) {
    parts.push_back(absl::StrCat(
        Brief(static_cast<double>(status.failed_rows())), " failed rows"));
  }
  return parts;
}

std::string StateName(v1::GenerationState state) {
  return absl::AsciiStrToLower(v1::GenerationState_Name(state));
}

// Before the first step, and after a fence: what everybody waits for.
std::string Waiting(const v1::Status& status) {
  if (status.stop()) return "stopping";
  if (status.state() == v1::ACTIVE || status.state() == v1::CLOSED) return "";
  if (!status.waiting_for().empty()) {
    return absl::StrCat("waiting: ", PrintableLine(status.waiting_for()));
  }
  return StateName(status.state());
}

std::string PhaseName(const v1::LearnerStatus& learner) {
  if (!Is(learner, LearnerState::kAlive)) return learner.state();
  if (learner.phase() == v1::PHASE_UNSPECIFIED) return "starting";
  return absl::AsciiStrToLower(v1::Phase_Name(learner.phase()));
}

bool OnOneHost(const v1::Status& status) {
  return std::all_of(status.learner().begin(), status.learner().end(),
                     [&](const v1::LearnerStatus& learner) {
                       return learner.host() == status.learner(0).host();
                     });
}

// "  rank 0  cpu  stepping    update 61  2.6k/s  waits for environments"
std::string RankLine(const v1::LearnerStatus& learner, bool with_host,
                     const std::string& device) {
  std::string line = absl::StrFormat("  rank %-3d", learner.rank());
  if (with_host) {
    absl::StrAppendFormat(&line, " %-10s", PrintableLine(learner.host()));
  }
  absl::StrAppendFormat(&line, " %s  %-10s  update %-6d", PrintableLine(device),
                        PhaseName(learner), learner.update());
  if (Is(learner, LearnerState::kLeft) || Is(learner, LearnerState::kDead)) {
    return line;  // the rest is of when it was last heard of
  }
  if (learner.steps_per_second() > 0) {
    absl::StrAppendFormat(&line, " %7s/s", Brief(learner.steps_per_second()));
  }
  if (!learner.waits_for().empty()) {
    absl::StrAppend(&line, "  waits for ", PrintableLine(learner.waits_for()));
  }
  return line;
}

std::string FirstWord(const std::string& text) {
  return text.substr(0, text.find(' '));
}

// `leased`: it is on its own, and a learner may have leased it.
std::string EnvServerLine(const v1::EnvServerStatus& server, bool leased) {
  std::string line = absl::StrFormat(
      "  %-24s %-12s %5d envs  %-10s", PrintableLine(server.id()),
      PrintableLine(server.host()), server.num_envs(), server.state());
  if (server.steps_per_second() > 0) {
    absl::StrAppend(&line, "  ", Brief(server.steps_per_second()), "/s");
  }
  if (leased && server.assigned_rank() >= 0) {
    absl::StrAppend(&line, "  rank ", server.assigned_rank());
  }
  if (server.restarts() > 0) {
    absl::StrAppend(&line, "  ", server.restarts(), " restarts");
  }
  if (server.failed_rows() > 0) {
    absl::StrAppend(&line, "  ",
                    Brief(static_cast<double>(server.failed_rows())),
                    " failed rows");
  }
  return line;
}

}  // namespace

std::string ProgressLine(const v1::Status& status,
                         const ProgressFacts& as_begun) {
  const ProgressFacts facts = AsChanged(as_begun, status);
  std::vector<std::string> parts;
  if (facts.total_env_steps > 0) {
    parts.push_back(absl::StrFormat(
        "%3.0f%%  %s / %s steps", 100 * Fraction(status, facts),
        WithCommas(status.global_step()), WithCommas(facts.total_env_steps)));
  } else {
    parts.push_back(absl::StrCat(WithCommas(status.global_step()), " steps"));
  }
  if (const std::string waiting = Waiting(status); !waiting.empty()) {
    parts.push_back(waiting);
  }
  parts.push_back(absl::StrCat("update ", status.update()));
  const std::vector<std::string> more = Measurements(status, facts);
  parts.insert(parts.end(), more.begin(), more.end());
  return absl::StrJoin(parts, "  ");
}

std::vector<std::string> ProgressBlock(const v1::Status& status,
                                       const ProgressFacts& as_begun,
                                       size_t width) {
  const ProgressFacts facts = AsChanged(as_begun, status);
  const std::string count =
      absl::StrFormat(" %3.0f%%  %s/%s steps", 100 * Fraction(status, facts),
                      Brief(static_cast<double>(status.global_step())),
                      Brief(static_cast<double>(facts.total_env_steps)));
  // What the name and the count leave of a line is the bar's.
  const size_t taken = facts.name.size() + sizeof(" []") - 1 + count.size();
  const size_t cells =
      std::clamp(width > taken ? width - taken : 0, kFewestCells, kMostCells);
  const size_t full = static_cast<size_t>(
      std::lround(Fraction(status, facts) * static_cast<double>(cells)));
  std::vector<std::string> block = {
      absl::StrCat(facts.name, " [", std::string(full, '#'),
                   std::string(cells - full, '-'), "]", count)};
  std::vector<std::string> now;
  if (const std::string waiting = Waiting(status); !waiting.empty()) {
    now.push_back(waiting);
  }
  const std::vector<std::string> more = Measurements(status, facts);
  now.insert(now.end(), more.begin(), more.end());
  if (!now.empty()) block.push_back("  " + absl::StrJoin(now, "  "));
  const bool with_host = !OnOneHost(status);
  for (int i = 0; i < status.learner_size() && i < kMostRanks; ++i) {
    const v1::LearnerStatus& learner = status.learner(i);
    block.push_back(RankLine(learner, with_host, FirstWord(learner.device())));
    if (!learner.trouble().empty()) {
      block.push_back("      " + PrintableLine(learner.trouble()));
    }
  }
  if (status.learner_size() > kMostRanks) {
    block.push_back(
        absl::StrCat("  and ", status.learner_size() - kMostRanks, " more"));
  }
  for (std::string& line : block) line = Cut(line, width);
  return block;
}

std::string ChangeLine(const v1::Change& change) {
  std::string line =
      absl::StrCat("change ", change.number(), ": ",
                   PrintableLine(absl::StrJoin(change.override(), " ")));
  if (!change.refused().empty()) {
    return absl::StrCat(line, ", refused: ", PrintableLine(change.refused()));
  }
  return change.update() == 0
             ? line + ", not agreed yet"
             : absl::StrCat(line, ", from update ", change.update(), " on");
}

std::string StatusText(const v1::Status& status, size_t width) {
  std::string text;
  const auto add = [&](const std::string& line) {
    AppendWrapped(line, width, kHang, &text);
  };
  add(absl::StrFormat("run %s  %s  generation %d  world %d  up %s  version %s",
                      status.run_id().empty() ? "-" : status.run_id(),
                      StateName(status.state()), status.generation(),
                      status.world_size(),
                      BriefSeconds(status.uptime_seconds()), status.version()));
  add(ProgressLine(status, {}));
  if (status.stop()) {
    add(absl::StrCat("stopping: ", PrintableLine(status.stop_reason())));
  }
  if (!status.started_over().empty()) {
    absl::StrAppend(&text, status.started_over(), "\n");
  }
  for (const v1::Change& change : status.change()) add(ChangeLine(change));
  if (!status.fence_reason().empty()) {
    add(absl::StrCat("the last generation ended: ",
                     PrintableLine(status.fence_reason())));
  }
  if (status.evaluation().round() > 0) {
    const v1::Evaluation& e = status.evaluation();
    add(absl::StrFormat(
        "evaluation %d of update %d: mean return %.1f over "
        "%d episodes (%.1f to %.1f)%s",
        e.round(), e.update(), e.mean_return(), e.episodes(), e.min_return(),
        e.max_return(), e.stop() ? ", solved" : ""));
  }
  add(absl::StrCat("learners: ", status.learner_size()));
  for (const v1::LearnerStatus& learner : status.learner()) {
    add(absl::StrFormat(
        "%s  heartbeat %.1fs ago  pid %d%s",
        RankLine(learner, /*with_host=*/true, learner.device()),
        learner.last_heartbeat_seconds(), learner.pid(),
        learner.restarts() == 0
            ? ""
            : absl::StrCat("  ", learner.restarts(), " restarts")));
    if (!learner.trouble().empty()) {
      add("      " + PrintableLine(learner.trouble()));
    }
    for (const v1::EnvServerStatus& worker : learner.env_worker()) {
      add("  " + EnvServerLine(worker, false));
    }
  }
  if (status.env_server_size() > 0) {
    add(absl::StrCat("env servers: ", status.env_server_size()));
    for (const v1::EnvServerStatus& server : status.env_server()) {
      add(EnvServerLine(server, true));
    }
  }
  return text;
}

ProgressMode ChooseProgressMode(const std::string& flag, std::FILE* out) {
  if (flag == "none") return ProgressMode::kNone;
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string(term) == "dumb";
  if (flag == "plain" || dumb || !isatty(fileno(out))) {
    return ProgressMode::kPlain;
  }
  return ProgressMode::kBar;
}

ProgressPrinter::ProgressPrinter(ProgressMode mode, const ProgressFacts& facts,
                                 std::FILE* out)
    : mode_(mode), facts_(facts), out_(out) {}

ProgressPrinter::~ProgressPrinter() { std::fflush(out_); }

void ProgressPrinter::Show(const std::optional<v1::Status>& status,
                           absl::Time now) {
  if (mode_ == ProgressMode::kNone || !status || now < next_) return;
  latest_ = NotBefore(*status, facts_);
  if (mode_ == ProgressMode::kBar) {
    next_ = now + kRedraw;
    EraseBlock();
    DrawBlock();
    return;
  }
  next_ = now + kPlainInterval;
  const std::string line = ProgressLine(*latest_, facts_);
  if (line == last_line_) return;
  last_line_ = line;
  std::fprintf(out_, "%s\n", line.c_str());
  std::fflush(out_);
}

void ProgressPrinter::Say(const std::string& line) {
  EraseBlock();
  std::fprintf(out_, "%s\n", line.c_str());
  if (latest_ && mode_ == ProgressMode::kBar) DrawBlock();
  std::fflush(out_);
}

void ProgressPrinter::Finish(const std::optional<v1::Status>& status) {
  next_ = absl::InfinitePast();
  Show(status ? status : latest_, absl::InfiniteFuture());
}

void ProgressPrinter::EraseBlock() {
  if (drawn_lines_ == 0) return;
  // Up to the block's first line, then clear to the end of the screen.
  std::fprintf(out_, "\x1b[%zuF\x1b[J", drawn_lines_);
  drawn_lines_ = 0;
}

void ProgressPrinter::DrawBlock() {
  const std::vector<std::string> block =
      ProgressBlock(*latest_, facts_, TerminalWidth(out_) - 1);
  for (const std::string& line : block) {
    std::fprintf(out_, "%s\n", line.c_str());
  }
  drawn_lines_ = block.size();
  std::fflush(out_);
}

}  // namespace flotilla
