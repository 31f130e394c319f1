#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_FINDINGS_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_FINDINGS_H_

#include <array>
#include <string>

#include "absl/strings/string_view.h"
#include "services/env/conformance/sentences.h"

namespace flotilla {

enum class Verdict { kSkipped, kOk, kWarning, kFailed };

// What was found of every sentence: the worst verdict, and the words of the
// first that was so bad. A sentence that nobody looked at is skipped.
//
// Not thread-safe.
class Findings {
 public:
  struct Finding {
    Verdict verdict = Verdict::kSkipped;
    // What came and what was wanted, or why it was skipped; printable, a line.
    std::string detail;
  };

  void Ok(Sentence sentence);
  void Warn(Sentence sentence, absl::string_view detail);
  void Fail(Sentence sentence, absl::string_view detail);
  // Only where nothing else is known of it.
  void Skip(Sentence sentence, absl::string_view why);

  // Of every sentence that is skipped without a reason so far.
  void SkipTheRest(absl::string_view why);

  const Finding& operator[](Sentence sentence) const {
    return findings_[static_cast<int>(sentence)];
  }
  int Count(Verdict verdict) const;
  bool failed() const { return Count(Verdict::kFailed) > 0; }

 private:
  void Set(Sentence sentence, Verdict verdict, absl::string_view detail);

  std::array<Finding, kSentenceCount> findings_;
};

// "ok", "warning", "FAIL", "skipped".
const char* VerdictName(Verdict verdict);

// A line for each sentence, and a summary.
std::string FindingsText(const Findings& findings);

// One object: {"ok", "failed", "warnings", "skipped": how many,
// "sentences": [{"name", "verdict", "text", "detail"}]}.
std::string FindingsJson(const Findings& findings);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_FINDINGS_H_
