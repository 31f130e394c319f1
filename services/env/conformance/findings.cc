#include "services/env/conformance/findings.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "services/base/json.h"
#include "services/base/printable.h"

namespace flotilla {
namespace {

constexpr size_t kMaxDetailBytes = 600;

}  // namespace

void Findings::Set(Sentence sentence, Verdict verdict,
                   absl::string_view detail) {
  Finding& finding = findings_[static_cast<int>(sentence)];
  const bool first =
      verdict == Verdict::kSkipped && finding.detail.empty();  // a reason
  if (verdict < finding.verdict || (verdict == finding.verdict && !first)) {
    return;
  }
  finding.verdict = verdict;
  finding.detail = PrintableLine(detail, kMaxDetailBytes);
}

void Findings::Ok(Sentence sentence) { Set(sentence, Verdict::kOk, ""); }

void Findings::Warn(Sentence sentence, absl::string_view detail) {
  Set(sentence, Verdict::kWarning, detail);
}

void Findings::Fail(Sentence sentence, absl::string_view detail) {
  Set(sentence, Verdict::kFailed, detail);
}

void Findings::Skip(Sentence sentence, absl::string_view why) {
  Set(sentence, Verdict::kSkipped, why);
}

void Findings::SkipTheRest(absl::string_view why) {
  for (int i = 0; i < kSentenceCount; ++i) Skip(static_cast<Sentence>(i), why);
}

int Findings::Count(Verdict verdict) const {
  return static_cast<int>(std::count_if(
      findings_.begin(), findings_.end(),
      [&](const Finding& finding) { return finding.verdict == verdict; }));
}

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSkipped:
      return "skipped";
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailed:
      break;
  }
  return "FAIL";
}

std::string FindingsText(const Findings& findings) {
  std::string text;
  for (int i = 0; i < kSentenceCount; ++i) {
    const auto sentence = static_cast<Sentence>(i);
    const Findings::Finding& finding = findings[sentence];
    const std::string verdict = VerdictName(finding.verdict);
    absl::StrAppend(&text, verdict, std::string(9 - verdict.size(), ' '),
                    SentenceName(sentence), ": ", SentenceText(sentence),
                    finding.detail.empty() ? "" : ": ", finding.detail, "\n");
  }
  absl::StrAppend(&text, findings.Count(Verdict::kOk), " ok, ",
                  findings.Count(Verdict::kFailed), " failed, ",
                  findings.Count(Verdict::kWarning), " warnings, ",
                  findings.Count(Verdict::kSkipped), " skipped\n");
  return text;
}

std::string FindingsJson(const Findings& findings) {
  Json sentences = Json::array();
  for (int i = 0; i < kSentenceCount; ++i) {
    const auto sentence = static_cast<Sentence>(i);
    const Findings::Finding& finding = findings[sentence];
    sentences.push_back({{"name", SentenceName(sentence)},
                         {"verdict", VerdictName(finding.verdict)},
                         {"text", SentenceText(sentence)},
                         {"detail", finding.detail}});
  }
  const Json json = {{"ok", findings.Count(Verdict::kOk)},
                     {"failed", findings.Count(Verdict::kFailed)},
                     {"warnings", findings.Count(Verdict::kWarning)},
                     {"skipped", findings.Count(Verdict::kSkipped)},
                     {"sentences", std::move(sentences)}};
  return FormatJson(json, 2) + "\n";
}

}  // namespace flotilla
