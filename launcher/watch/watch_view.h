#ifndef FLOTILLA_LAUNCHER_WATCH_WATCH_VIEW_H_
#define FLOTILLA_LAUNCHER_WATCH_WATCH_VIEW_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "flotilla/v1/coordinator.pb.h"

namespace flotilla {

// A line of a screen.
struct ScreenLine {
  enum class Style { kPlain, kTitle, kBold, kDim, kAlarm, kChosen };
  std::string text;
  Style style = Style::kPlain;
};

// What a terminal's keys come to; letters are themselves.
enum Key : int {
  kKeyUp = 0x100,
  kKeyDown,
  kKeyPageUp,
  kKeyPageDown,
  kKeyHome,
  kKeyEnd,
  kKeyEnter,
  kKeyEscape,
};

// `flotilla status --watch` without its terminal: a run's status, what a person
// has pressed, and the screen that comes of both.
//
// Not thread-safe.
class WatchView {
 public:
  // What a key asks for beside another screen.
  enum class Wish { kNothing, kQuit, kStop };

  // `utf8`: whether the terminal shows more than ASCII.
  explicit WatchView(bool utf8) : utf8_(utf8) {}

  // The newest status; curves are made of those that were taken in.
  void Take(const v1::Status& status);

  // Why nothing newer comes, in words; "": it comes.
  void SetSilence(const std::string& silence) { silence_ = silence; }

  // The end of the log of LogRank(); the newest last.
  void SetLog(std::vector<std::string> lines) { log_ = std::move(lines); }

  // The learner whose log is to be shown; -1 if there is none.
  int LogRank() const;

  Wish Press(int key);

  // At most `rows` lines of at most `columns` characters.
  std::vector<ScreenLine> Render(size_t columns, size_t rows) const;

 private:
  enum class Sort { kRank, kSpeed, kWait, kFailures };

  // One learner, or an env worker or server below it.
  struct Row {
    std::vector<std::string> cells;
    int learner = -1;  // its place in status_; -1: an env server
    bool is_worker = false;
    bool alarm = false;
  };

  std::vector<int> SortedLearners() const;
  std::vector<Row> Rows() const;
  void AddTable(size_t columns, size_t rows,
                std::vector<ScreenLine>* screen) const;
  std::vector<ScreenLine> Header(size_t columns) const;
  std::vector<ScreenLine> Troubles() const;
  std::string Curve(const char* title, const std::vector<double>& values,
                    size_t columns) const;
  std::string Keys() const;
  void Choose(int step);

  const bool utf8_;
  v1::Status status_;
  std::string silence_;
  std::vector<std::string> log_;
  std::vector<double> returns_, rates_;  // oldest first
  Sort sort_ = Sort::kRank;
  std::string chosen_;              // a learner's id; "": the first one
  std::set<std::string> expanded_;  // ids
  bool shows_log_ = true;
  bool asks_to_stop_ = false;
};

// The last `width` of `values` as bars that are as high as they are large, between
// the least and the largest of them. Without `utf8`, of ASCII.
std::string Sparkline(const std::vector<double>& values, size_t width,
                      bool utf8);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_WATCH_WATCH_VIEW_H_
