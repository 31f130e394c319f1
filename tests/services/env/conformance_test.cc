#include "services/env/conformance/conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/base/random.h"
#include "tests/services/env/conformance_servers.h"
#include "tests/services/env/defects.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

ConformanceOptions Options(std::shared_ptr<grpc::Channel> channel,
                           const std::string& env_id) {
  ConformanceOptions options;
  options.channel = std::move(channel);
  options.env_id = env_id;
  options.steps = 26;
  options.timeout = absl::Seconds(20);
  return options;
}

std::string Failures(const Findings& findings) {
  std::string text;
  for (int i = 0; i < kSentenceCount; ++i) {
    const auto sentence = static_cast<Sentence>(i);
    if (findings[sentence].verdict != Verdict::kFailed) continue;
    text += std::string(SentenceName(sentence)) + ": " +
            findings[sentence].detail + "\n";
  }
  return text;
}

TEST(ConformanceTest, OurServerKeepsEverySentence) {
  for (const char* env_id :
       {"CartPole-v1", "Maze", "Masked", "Team", "Connect4"}) {
    Server server;
    ConformanceOptions options = Options(server.Channel(), env_id);
    options.shut_down = [&] { server.Shutdown(); };
    const Findings findings = CheckConformance(options);
    EXPECT_FALSE(findings.failed()) << env_id << "\n" << Failures(findings);
    // Of Connect4 a seed says who begins, which may be the same in so few games.
    EXPECT_LE(findings.Count(Verdict::kWarning),
              env_id == std::string("Connect4"))
        << FindingsText(findings);
    EXPECT_EQ(findings[Sentence::kShutdown].verdict, Verdict::kOk);
    EXPECT_EQ(findings[Sentence::kSharedMemory].verdict, Verdict::kOk);
    EXPECT_EQ(findings[Sentence::kRing].verdict, Verdict::kOk);
    EXPECT_EQ(findings[Sentence::kEpisodeStart].verdict, Verdict::kOk);
    const std::string id = env_id;
    const bool masked = id == "Masked" || id == "Connect4";
    for (const Sentence sentence :
         {Sentence::kMask, Sentence::kMaskPath, Sentence::kOptionUnknown}) {
      EXPECT_EQ(findings[sentence].verdict,
                masked ? Verdict::kOk : Verdict::kSkipped);
    }
    const bool several = id == "Team" || id == "Connect4";
    EXPECT_EQ(findings[Sentence::kAgents].verdict, Verdict::kOk);
    for (const Sentence sentence :
         {Sentence::kActive, Sentence::kAgentEnds, Sentence::kActionIdle}) {
      EXPECT_EQ(findings[sentence].verdict,
                several ? Verdict::kOk : Verdict::kSkipped)
          << env_id << " " << SentenceName(sentence);
    }
  }
}

TEST(ConformanceTest, TurnsGoOnAfterAnEnvironmentFailed) {
  Server server;
  const Findings findings =
      CheckConformance(Options(server.Channel(), "Fragile"));
  EXPECT_FALSE(findings.failed()) << Failures(findings);
  EXPECT_EQ(findings[Sentence::kRowErrors].verdict, Verdict::kOk);
  EXPECT_EQ(findings[Sentence::kEpisodeLength].verdict, Verdict::kOk);
}

TEST(ConformanceTest, RowsAreNotAskedForInOneGroupThatCannotHoldThem) {
  Server server;
  ConformanceOptions options = Options(server.Channel(), "Wide");
  options.steps = 1;
  const Findings findings = CheckConformance(options);
  EXPECT_FALSE(findings.failed()) << Failures(findings);
  EXPECT_EQ(findings[Sentence::kRowsOverAll].verdict, Verdict::kSkipped);
  EXPECT_THAT(findings[Sentence::kRowsOverAll].detail,
              HasSubstr("4 rows of this size do not fit into one group"));
}

TEST(ConformanceTest, TheServersPatienceIsWaitedForIfAsked) {
  PlayOptions play;
  play.hello_timeout = play.start_timeout = absl::Milliseconds(300);
  Server server(play);
  ConformanceOptions options = Options(server.Channel(), "CartPole-v1");
  options.hello_limit = play.hello_timeout;
  EXPECT_EQ(CheckConformance(options)[Sentence::kHelloLimit].verdict,
            Verdict::kOk);

  Server patient;
  options = Options(patient.Channel(), "CartPole-v1");
  options.hello_limit = absl::Milliseconds(1);
  options.timeout = absl::Seconds(1);
  const Findings findings = CheckConformance(options);
  EXPECT_EQ(findings[Sentence::kHelloLimit].verdict, Verdict::kFailed);
  EXPECT_THAT(findings[Sentence::kHelloLimit].detail,
              HasSubstr("after no hello nothing came"));
}

TEST(ConformanceTest, TheRelayAloneChangesNothing) {
  DefectiveServer server([] { return Defect(); });
  const Findings findings =
      CheckConformance(Options(server.Channel(), "CartPole-v1"));
  EXPECT_FALSE(findings.failed()) << Failures(findings);
}

class DefectTest : public testing::TestWithParam<std::string> {};

TEST_P(DefectTest, FailsTheSentenceThatItBreaks) {
  const Case& c = Cases().at(GetParam());
  DefectiveServer server(c.make);
  ConformanceOptions options = Options(server.Channel(), c.env_id);
  options.timeout = c.timeout;
  const Findings findings = CheckConformance(options);
  EXPECT_EQ(findings[c.sentence].verdict, c.verdict)
      << SentenceName(c.sentence) << ": " << findings[c.sentence].detail
      << "\nfailed are\n"
      << Failures(findings);
  EXPECT_NE(findings[c.sentence].detail, "");
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, defect] : Cases()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, DefectTest, testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

// Bytes of replies change at random; whatever still is a message is sent.
TEST(ConformanceTest, NothingThatComesEndsTheChecker) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    DefectiveServer server([seed] {
      Defect defect;
      auto random = std::make_shared<Random>(seed);
      // Some are spoilt from the welcome on, some in their steps.
      defect.reply = [random, seed](v1::PlayReply reply) {
        if (reply.has_welcome() ? seed % 3 != 0 : random->Below(4) != 0) {
          return std::vector<v1::PlayReply>{reply};
        }
        std::string bytes = reply.SerializeAsString();
        for (int i = 0; i < 3; ++i) {
          bytes[random->Below(bytes.size())] =
              static_cast<char>(random->Below(256));
        }
        v1::PlayReply spoilt;
        if (!spoilt.ParseFromString(bytes)) return std::vector{reply};
        return std::vector<v1::PlayReply>{spoilt};
      };
      return defect;
    });
    ConformanceOptions options =
        Options(server.Channel(), seed % 2 == 0 ? "Masked" : "Maze");
    options.timeout = absl::Milliseconds(300);
    options.steps = 12;
    const Findings findings = CheckConformance(options);
    EXPECT_EQ(findings.Count(Verdict::kSkipped) + findings.Count(Verdict::kOk) +
                  findings.Count(Verdict::kWarning) +
                  findings.Count(Verdict::kFailed),
              kSentenceCount);
  }
}

TEST(ConformanceTest, NobodyThereIsToldInTime) {
  auto channel = MakeChannel("unix:/nowhere/at/all", {});
  ASSERT_TRUE(channel.ok());
  ConformanceOptions options = Options(*channel, "CartPole-v1");
  options.timeout = absl::Milliseconds(200);
  const Findings findings = CheckConformance(options);
  EXPECT_EQ(findings[Sentence::kWelcome].verdict, Verdict::kFailed);
  EXPECT_THAT(findings[Sentence::kInTime].detail, HasSubstr("no welcome"));
  EXPECT_EQ(findings.Count(Verdict::kOk), 0);
}

TEST(FindingsTest, TheWorstVerdictAndItsFirstWordsStay) {
  Findings findings;
  findings.Skip(Sentence::kSeq, "not yet");
  EXPECT_THAT(FindingsText(findings), HasSubstr("skipped  seq: "));
  findings.Ok(Sentence::kSeq);
  findings.Fail(Sentence::kSeq, "first\x1b");
  findings.Fail(Sentence::kSeq, "second");
  findings.Ok(Sentence::kSeq);
  findings.Warn(Sentence::kSeq, "third");
  findings.SkipTheRest("the end");
  EXPECT_EQ(findings[Sentence::kSeq].detail, "first\\x1b");
  EXPECT_TRUE(findings.failed());
  const std::string text = FindingsText(findings);
  EXPECT_THAT(text, HasSubstr("FAIL     seq: seq is 0 for the reset, then "
                              "counts the group's steps: first\\x1b\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kSentenceCount + 1);
  EXPECT_THAT(FindingsJson(findings), HasSubstr("\"verdict\": \"FAIL\""));
}

}  // namespace
}  // namespace flotilla
