#include "launcher/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/numbers.h"
#include "services/base/member_state.h"

namespace flotilla {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(200);
constexpr absl::Duration kPlainInterval = absl::Seconds(5);
constexpr int kBarCells = 24;
constexpr int kMostRanks = 16;  // lines of a block

double Fraction(const v1::Status& status, const ProgressFacts& facts) {
  if (facts.total_env_steps <= 0) return 0;
  return std::clamp(static_cast<double>(status.global_step()) /
                        static_cast<double>(facts.total_env_steps),
                    0.0, 1.0);
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
  if (status.global_step() > 0) {
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
    return absl::StrCat("waiting: ", status.waiting_for());
  }
  return StateName(status.state());
}

std::string PhaseName(const v1::LearnerStatus& learner) {
  if (!Is(learner, LearnerState::kAlive)) return learner.state();
  if (learner.phase() == v1::PHASE_UNSPECIFIED) return "starting";
  return absl::AsciiStrToLower(v1::Phase_Name(learner.phase()));
}

std::string RankLine(const v1::LearnerStatus& learner) {
  const std::string waits =
      learner.waits_for().empty()
          ? ""
          : absl::StrCat("  waits for ", learner.waits_for());
  return absl::StrFormat("  rank %-3d %-12s %-8s %-11s update %-6d %9s/s%s",
                         learner.rank(), learner.host(), learner.device(),
                         PhaseName(learner), learner.update(),
                         Brief(learner.steps_per_second()), waits) +
         (learner.trouble().empty()
              ? ""
              : absl::StrCat("\n      ", learner.trouble()));
}

std::string Cut(const std::string& line, size_t width) {
  return line.size() <= width ? line : line.substr(0, width);
}

size_t TerminalWidth(std::FILE* out) {
  winsize size = {};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// `leased`: it is on its own, and a learner may have leased it.
std::string EnvServerLine(const v1::EnvServerStatus& server, bool leased) {
  std::string line =
      absl::StrFormat("  %-24s %-12s %5d envs  %-10s", server.id(),
                      server.host(), server.num_envs(), server.state());
  if (server.steps_per_second() > 0) {
    absl::StrAppend(&line, "  ", Brief(server.steps_per_second()), "/s");
  }
  if (leased && server.assigned_rank() >= 0) {
    absl::StrAppend(&line, "  rank ", server.assigned_rank());
  }
  if (server.restarts() > 0) {
    absl::StrAppend(&line, "  ", server.restarts(), " restarts");
  }
  return line;
}

}  // namespace

std::string ProgressLine(const v1::Status& status, const ProgressFacts& facts) {
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
                                       const ProgressFacts& facts,
                                       size_t width) {
  const int full =
      static_cast<int>(std::lround(Fraction(status, facts) * kBarCells));
  const std::string bar = absl::StrCat(
      "[", std::string(static_cast<size_t>(full), '#'),
      std::string(static_cast<size_t>(kBarCells - full), '-'), "]");
  std::vector<std::string> head = {
      absl::StrFormat("%s %s %3.0f%%", facts.name, bar,
                      100 * Fraction(status, facts)),
      absl::StrCat(Brief(static_cast<double>(status.global_step())), "/",
                   Brief(static_cast<double>(facts.total_env_steps)))};
  if (const std::string waiting = Waiting(status); !waiting.empty()) {
    head.push_back(waiting);
  }
  const std::vector<std::string> more = Measurements(status, facts);
  head.insert(head.end(), more.begin(), more.end());
  std::vector<std::string> block = {Cut(absl::StrJoin(head, "  "), width)};
  for (int i = 0; i < status.learner_size() && i < kMostRanks; ++i) {
    block.push_back(Cut(RankLine(status.learner(i)), width));
  }
  if (status.learner_size() > kMostRanks) {
    block.push_back(
        absl::StrCat("  and ", status.learner_size() - kMostRanks, " more"));
  }
  return block;
}

std::string StatusText(const v1::Status& status) {
  std::string text = absl::StrFormat(
      "run %s  %s  generation %d  world %d  up %s  version %s\n",
      status.run_id().empty() ? "-" : status.run_id(),
      StateName(status.state()), status.generation(), status.world_size(),
      BriefSeconds(status.uptime_seconds()), status.version());
  absl::StrAppend(&text, ProgressLine(status, {}), "\n");
  if (status.stop()) {
    absl::StrAppend(&text, "stopping: ", status.stop_reason(), "\n");
  }
  if (!status.fence_reason().empty()) {
    absl::StrAppend(&text, "the last generation ended: ", status.fence_reason(),
                    "\n");
  }
  if (status.evaluation().round() > 0) {
    const v1::Evaluation& e = status.evaluation();
    absl::StrAppendFormat(&text,
                          "evaluation %d of update %d: mean return %.1f over "
                          "%d episodes (%.1f to %.1f)%s\n",
                          e.round(), e.update(), e.mean_return(), e.episodes(),
                          e.min_return(), e.max_return(),
                          e.stop() ? ", solved" : "");
  }
  absl::StrAppend(&text, "learners: ", status.learner_size(), "\n");
  for (const v1::LearnerStatus& learner : status.learner()) {
    absl::StrAppendFormat(
        &text, "%s  heartbeat %.1fs ago  pid %d%s\n", RankLine(learner),
        learner.last_heartbeat_seconds(), learner.pid(),
        learner.restarts() == 0
            ? ""
            : absl::StrCat("  ", learner.restarts(), " restarts"));
    for (const v1::EnvServerStatus& worker : learner.env_worker()) {
      absl::StrAppend(&text, "  ", EnvServerLine(worker, false), "\n");
    }
  }
  if (status.env_server_size() > 0) {
    absl::StrAppend(&text, "env servers: ", status.env_server_size(), "\n");
    for (const v1::EnvServerStatus& server : status.env_server()) {
      absl::StrAppend(&text, EnvServerLine(server, true), "\n");
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
  latest_ = status;
  if (mode_ == ProgressMode::kBar) {
    next_ = now + kRedraw;
    EraseBlock();
    DrawBlock();
    return;
  }
  next_ = now + kPlainInterval;
  const std::string line = ProgressLine(*status, facts_);
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
