#include "launcher/watch/watch_view.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/numbers.h"
#include "launcher/progress.h"
#include "launcher/text_layout.h"
#include "services/base/member_state.h"
#include "services/base/printable.h"

namespace flotilla {
namespace {

using Style = ScreenLine::Style;

constexpr size_t kKept = 1000;    // values of a curve
constexpr size_t kFewestLog = 3;  // lines of a log that are worth showing
constexpr size_t kMostTroubles = 6;

std::string PhaseOf(const v1::LearnerStatus& learner) {
  if (!Is(learner, LearnerState::kAlive)) return learner.state();
  if (learner.phase() == v1::PHASE_UNSPECIFIED) return "starting";
  return absl::AsciiStrToLower(v1::Phase_Name(learner.phase()));
}

bool IsWell(const v1::LearnerStatus& learner) {
  return (Is(learner, LearnerState::kAlive) ||
          Is(learner, LearnerState::kJoining) ||
          Is(learner, LearnerState::kLeft)) &&
         learner.trouble().empty();
}

std::string RateText(double rate) { return rate > 0 ? Brief(rate) : ""; }
std::string CountText(int64_t count) {
  return count > 0 ? absl::StrCat(count) : "";
}

std::string WorkersText(const v1::LearnerStatus& learner) {
  int plays = 0;
  for (const v1::EnvServerStatus& worker : learner.env_worker()) {
    plays += Is(worker, EnvServerState::kPlaying);
  }
  return absl::StrCat(plays, "/", learner.env_worker_size());
}

std::vector<std::string> CellsOf(const v1::EnvServerStatus& worker,
                                 const std::string& indent) {
  return {absl::StrCat(indent, PrintableLine(worker.id())),
          PrintableLine(worker.host()),
          "",
          worker.state(),
          "",
          "",
          RateText(worker.steps_per_second()),
          absl::StrCat(worker.num_envs(), " envs"),
          CountText(worker.failed_rows()),
          CountText(worker.restarts()),
          worker.assigned_rank() >= 0 && indent.empty()
              ? absl::StrCat("of rank ", worker.assigned_rank())
              : ""};
}

void Keep(double value, std::vector<double>* values) {
  values->push_back(value);
  if (values->size() > kKept) values->erase(values->begin());
}

}  // namespace

std::string Sparkline(const std::vector<double>& values, size_t width,
                      bool utf8) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄",
                                            "▅", "▆", "▇", "█"};
  static constexpr const char* kAscii[] = {"_", ".", "-", "~",
                                           "+", "*", "%", "#"};
  const size_t count = std::min(width, values.size());
  const auto first = values.end() - static_cast<ptrdiff_t>(count);
  double low = INFINITY, high = -INFINITY;
  for (auto value = first; value != values.end(); ++value) {
    if (!std::isfinite(*value)) continue;
    low = std::min(low, *value);
    high = std::max(high, *value);
  }
  std::string line;
  for (auto value = first; value != values.end(); ++value) {
    size_t level = 0;
    if (std::isfinite(*value) && high > low) {
      level = static_cast<size_t>(
          std::min(7.0, std::floor(8 * (*value - low) / (high - low))));
    }
    line += (utf8 ? kBlocks : kAscii)[level];
  }
  return line;
}

void WatchView::Take(const v1::Status& status) {
  // A return is news with its update; a rate is of the moment.
  const bool first = status_.epoch().empty();
  if ((first || status.update() != status_.update()) &&
      status.mean_return() != 0) {
    Keep(status.mean_return(), &returns_);
  }
  if (status.steps_per_second() > 0) Keep(status.steps_per_second(), &rates_);
  status_ = status;
}

std::vector<int> WatchView::SortedLearners() const {
  std::vector<int> order(status_.learner_size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  const auto before = [&](int i, int j) {
    const v1::LearnerStatus& a = status_.learner(i);
    const v1::LearnerStatus& b = status_.learner(j);
    switch (sort_) {
      case Sort::kRank:
        return false;  // as they come
      case Sort::kSpeed:
        return a.steps_per_second() < b.steps_per_second();
      case Sort::kWait:
        return a.phase_seconds() > b.phase_seconds();
      case Sort::kFailures:
        return a.failed_rows() + a.restarts() > b.failed_rows() + b.restarts();
    }
    return false;
  };
  std::stable_sort(order.begin(), order.end(), before);
  return order;
}

int WatchView::LogRank() const {
  const std::vector<int> order = SortedLearners();
  for (const int i : order) {
    if (status_.learner(i).id() == chosen_) return status_.learner(i).rank();
  }
  return order.empty() ? -1 : status_.learner(order[0]).rank();
}

void WatchView::Choose(int step) {
  const std::vector<int> order = SortedLearners();
  if (order.empty()) return;
  int at = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (status_.learner(order[i]).id() == chosen_) at = static_cast<int>(i);
  }
  at = std::clamp(at + step, 0, static_cast<int>(order.size()) - 1);
  chosen_ = status_.learner(order[at]).id();
}

WatchView::Wish WatchView::Press(int key) {
  constexpr int kPage = 10, kAll = 1 << 20;
  if (asks_to_stop_) {
    asks_to_stop_ = false;
    return key == 'y' || key == 'Y' ? Wish::kStop : Wish::kNothing;
  }
  switch (key) {
    case 'q':
    case 'Q':
      return Wish::kQuit;
    case 'S':
      asks_to_stop_ = !status_.stop();
      break;
    case 's':
      sort_ = static_cast<Sort>((static_cast<int>(sort_) + 1) % 4);
      break;
    case 'l':
      shows_log_ = !shows_log_;
      break;
    case 'k':
    case kKeyUp:
      Choose(-1);
      break;
    case 'j':
    case kKeyDown:
      Choose(1);
      break;
    case kKeyPageUp:
      Choose(-kPage);
      break;
    case kKeyPageDown:
      Choose(kPage);
      break;
    case kKeyHome:
      Choose(-kAll);
      break;
    case kKeyEnd:
      Choose(kAll);
      break;
    case ' ':
    case kKeyEnter: {
      Choose(0);
      if (!expanded_.insert(chosen_).second) expanded_.erase(chosen_);
      break;
    }
    default:
      break;
  }
  return Wish::kNothing;
}

std::string WatchView::Curve(const char* title,
                             const std::vector<double>& values,
                             size_t columns) const {
  if (values.size() < 2) return "";
  const std::string head = absl::StrFormat("%-8s ", title);
  const size_t width = columns > 40 ? columns - 30 : 10;
  const size_t count = std::min(width, values.size());
  const auto [low, high] = std::minmax_element(
      values.end() - static_cast<ptrdiff_t>(count), values.end());
  return absl::StrCat(head, Sparkline(values, width, utf8_), " ", Brief(*low),
                      " to ", Brief(*high));
}

std::vector<ScreenLine> WatchView::Header(size_t columns) const {
  std::vector<ScreenLine> lines;
  lines.push_back(
      {absl::StrFormat(
           "run %s  %s  generation %d  world %d  up %s",
           status_.run_id().empty() ? "-" : PrintableLine(status_.run_id()),
           absl::AsciiStrToLower(v1::GenerationState_Name(status_.state())),
           status_.generation(), status_.world_size(),
           BriefSeconds(status_.uptime_seconds())),
       Style::kTitle});
  lines.push_back({ProgressLine(status_, {}), Style::kBold});
  for (const std::string& curve : {Curve("return", returns_, columns),
                                   Curve("steps/s", rates_, columns)}) {
    if (!curve.empty()) lines.push_back({curve});
  }
  if (status_.change_size() > 0) {
    lines.push_back(
        {ChangeLine(status_.change(status_.change_size() - 1)), Style::kDim});
  }
  return lines;
}

std::vector<ScreenLine> WatchView::Troubles() const {
  std::vector<ScreenLine> lines;
  const auto add = [&](const std::string& text) {
    if (lines.size() < kMostTroubles) lines.push_back({text, Style::kAlarm});
  };
  if (!silence_.empty()) add(silence_);
  if (status_.stop()) {
    add(absl::StrCat("stopping: ", PrintableLine(status_.stop_reason())));
  }
  if (!status_.started_over().empty()) {
    add(PrintableLine(status_.started_over()));
  }
  for (const v1::LearnerStatus& learner : status_.learner()) {
    if (learner.trouble().empty()) continue;
    add(absl::StrCat("rank ", learner.rank(), ": ",
                     PrintableLine(learner.trouble())));
  }
  if (!status_.fence_reason().empty()) {
    add(absl::StrCat("the last generation ended: ",
                     PrintableLine(status_.fence_reason())));
  }
  if (!status_.waiting_for().empty()) {
    lines.push_back(
        {absl::StrCat("waiting: ", PrintableLine(status_.waiting_for()))});
  }
  return lines;
}

std::vector<WatchView::Row> WatchView::Rows() const {
  std::vector<Row> rows;
  for (const int i : SortedLearners()) {
    const v1::LearnerStatus& learner = status_.learner(i);
    const bool here = Is(learner, LearnerState::kAlive);
    const bool expanded = expanded_.contains(learner.id());
    rows.push_back(
        {.cells = {absl::StrCat(expanded ? "- " : "+ ", "rank ",
                                learner.rank()),
                   PrintableLine(learner.host()),
                   PrintableLine(learner.device()), PhaseOf(learner),
                   here ? BriefSeconds(learner.phase_seconds()) : "",
                   absl::StrCat(learner.update()),
                   here ? RateText(learner.steps_per_second()) : "",
                   WorkersText(learner), CountText(learner.failed_rows()),
                   CountText(learner.restarts()),
                   here ? PrintableLine(learner.waits_for()) : ""},
         .learner = i,
         .alarm = !IsWell(learner)});
    if (!expanded) continue;
    for (const v1::EnvServerStatus& worker : learner.env_worker()) {
      rows.push_back({.cells = CellsOf(worker, "    "),
                      .learner = i,
                      .is_worker = true,
                      .alarm = Is(worker, EnvServerState::kDead) ||
                               Is(worker, EnvServerState::kRestarting)});
    }
  }
  for (const v1::EnvServerStatus& server : status_.env_server()) {
    rows.push_back({.cells = CellsOf(server, ""),
                    .is_worker = true,
                    .alarm = Is(server, EnvServerState::kDead)});
  }
  return rows;
}

void WatchView::AddTable(size_t columns, size_t rows,
                         std::vector<ScreenLine>* screen) const {
  if (rows < 2) return;
  const auto mark = [&](const char* title, Sort sort) {
    return absl::StrCat(title, sort_ == sort ? "*" : "");
  };
  const std::vector<Row> all = Rows();
  std::vector<std::vector<std::string>> cells = {
      {mark("learner", Sort::kRank), "host", "device", "phase",
       mark("for", Sort::kWait), "update", mark("steps/s", Sort::kSpeed),
       "workers", mark("failed", Sort::kFailures), "restarts", "waits for"}};
  for (const Row& row : all) cells.push_back(row.cells);
  std::vector<std::string> lines;
  const std::string table = Table(std::move(cells), {4, 5, 6, 8, 9});
  for (size_t begin = 0; begin < table.size();) {
    const size_t end = table.find('\n', begin);
    lines.push_back(Cut(table.substr(begin, end - begin), columns));
    begin = end + 1;
  }
  screen->push_back({lines[0], Style::kBold});
  // What was chosen stays in sight.
  size_t chosen = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is =
        !all[i].is_worker && status_.learner(all[i].learner).id() == chosen_;
    if (is) chosen = i;
  }
  const size_t fit = rows - 1;
  size_t first = 0;
  if (all.size() > fit && chosen >= fit / 2) {
    first = std::min(chosen - fit / 2, all.size() - fit);
  }
  for (size_t i = first; i < all.size() && i < first + fit; ++i) {
    const bool last = i + 1 == first + fit && i + 1 < all.size();
    if (last) {
      screen->push_back(
          {absl::StrCat("  and ", all.size() - i, " more"), Style::kDim});
      break;
    }
    Style style = all[i].alarm ? Style::kAlarm : Style::kPlain;
    if (i == chosen && !all[i].is_worker) style = Style::kChosen;
    screen->push_back({lines[i + 1], style});
  }
}

std::string WatchView::Keys() const {
  if (asks_to_stop_) {
    return "save a checkpoint and stop the run? y: yes, any other key: no";
  }
  static constexpr const char* kSorts[] = {"rank", "slowest",
                                           "longest in phase", "failures"};
  return absl::StrCat("q quit  s sort (", kSorts[static_cast<int>(sort_)],
                      ")  up/down choose  enter workers  l log  S stop");
}

std::vector<ScreenLine> WatchView::Render(size_t columns, size_t rows) const {
  std::vector<ScreenLine> screen = Header(columns);
  for (ScreenLine& line : Troubles()) screen.push_back(std::move(line));
  const size_t foot = 1;
  const size_t room =
      rows > screen.size() + foot ? rows - screen.size() - foot : 0;
  // The table first; what it leaves is the log's.
  const size_t table = Rows().size() + 1;
  const bool log = shows_log_ && !log_.empty() && room > kFewestLog + 4;
  const size_t of_table =
      std::min(room, log ? std::min(table, room - kFewestLog - 1) : table);
  AddTable(columns, of_table, &screen);
  if (log) {
    const size_t left = room - of_table;
    const size_t count = std::min(left - 1, log_.size());
    screen.push_back({absl::StrCat("log of rank ", LogRank()), Style::kBold});
    for (size_t i = log_.size() - count; i < log_.size(); ++i) {
      screen.push_back({PrintableLine(log_[i]), Style::kDim});
    }
  }
  if (screen.size() + foot > rows) screen.resize(rows > foot ? rows - foot : 0);
  while (screen.size() + foot < rows) screen.push_back({});
  screen.push_back({Keys(), asks_to_stop_ ? Style::kAlarm : Style::kDim});
  if (screen.size() > rows) screen.resize(rows);
  for (ScreenLine& line : screen) line.text = Cut(line.text, columns);
  return screen;
}

}  // namespace flotilla
