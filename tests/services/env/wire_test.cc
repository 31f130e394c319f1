#include "services/env/wire.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace flotilla {
namespace {

using google::protobuf::util::MessageDifferencer;

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string Bytes(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  EXPECT_TRUE(buffer.DumpToSingleSlice(&slice).ok());
  return std::string(reinterpret_cast<const char*>(slice.begin()),
                     slice.size());
}

v1::PlayReply FullReply() {
  v1::PlayReply reply;
  v1::StepBatch* step = reply.mutable_step();
  step->set_group(1);
  step->set_seq(2);
  step->mutable_inline_()->add_leaf(std::string(1000, 'x'));
  step->set_reward("rrrr");
  step->set_terminated("t");
  step->set_truncated("u");
  step->add_final_row(3);
  step->mutable_final_observation()->add_leaf("f");
  (*step->add_episode_end()->mutable_metric())["success"] = 1;
  step->add_error()->set_message("m");
  step->set_active("a");
  return reply;
}

// Whatever was in the message before, parsing gives what was sent.
TEST(WireTest, ReplyIsWhatWasSentWhateverWasThereBefore) {
  std::vector<v1::PlayReply> replies(5);
  replies[0] = FullReply();
  replies[1].mutable_step()->mutable_inline_()->add_leaf("only");
  replies[2].mutable_step()->set_slot(4);
  replies[3].mutable_welcome()->set_version("v");
  for (const v1::PlayReply& before : replies) {
    for (const v1::PlayReply& sent : replies) {
      v1::PlayReply parsed = before;
      ASSERT_TRUE(ParseMessage(Serialize(sent), &parsed));
      // An empty final_observation may remain where none was sent, and a step
      // where nothing was.
      if (sent.has_step() &&
          parsed.step().final_observation().leaf_size() == 0) {
        parsed.mutable_step()->clear_final_observation();
      }
      if (sent.reply_case() == v1::PlayReply::REPLY_NOT_SET) {
        EXPECT_EQ(parsed.step().inline_().leaf_size(), 0);
        EXPECT_FALSE(parsed.has_welcome());
        continue;
      }
      EXPECT_TRUE(MessageDifferencer::Equals(sent, parsed))
          << before.DebugString() << sent.DebugString() << parsed.DebugString();
    }
  }
}

TEST(WireTest, RequestIsWhatWasSentWhateverWasThereBefore) {
  std::vector<v1::PlayRequest> requests(4);
  requests[0].mutable_actions()->add_action("aaaa");
  requests[0].mutable_actions()->set_seq(9);
  requests[1].mutable_actions()->set_group(1);
  requests[2].mutable_hello()->set_env_id("e");
  requests[3].mutable_start()->mutable_shared_memory()->set_slot_bytes(7);
  for (const v1::PlayRequest& before : requests) {
    for (const v1::PlayRequest& sent : requests) {
      v1::PlayRequest parsed = before;
      ASSERT_TRUE(ParseMessage(Serialize(sent), &parsed));
      EXPECT_TRUE(MessageDifferencer::Equals(sent, parsed));
    }
  }
}

TEST(WireTest, StepsReuseTheirMemory) {
  v1::PlayReply parsed;
  ASSERT_TRUE(ParseMessage(Serialize(FullReply()), &parsed));
  const void* leaf = parsed.step().inline_().leaf(0).data();
  ASSERT_TRUE(ParseMessage(Serialize(FullReply()), &parsed));
  EXPECT_EQ(parsed.step().inline_().leaf(0).data(), leaf);
}

TEST(WireTest, ActionsAreAPlayRequest) {
  v1::PlayRequest request;
  request.mutable_actions()->set_group(3);
  request.mutable_actions()->set_seq(1ull << 40);
  request.mutable_actions()->add_action(std::string(500, 'a'));
  EXPECT_EQ(Bytes(SerializeActions(request.actions())),
            request.SerializeAsString());
}

TEST(WireTest, GarbageIsNoMessage) {
  v1::PlayRequest request;
  v1::PlayReply reply;
  for (const std::string bytes : {"\x1a\xff\x01", "\xff", "\x1a\x02\x1a\x7f"}) {
    EXPECT_FALSE(ParseMessage(Buffer(bytes), &request));
  }
  EXPECT_FALSE(ParseMessage(Buffer("\x12\x05\x1a"), &reply));
}

TEST(WireTest, UnknownFieldsOfANewerPeerDoNotPileUp) {
  v1::PlayReply parsed;
  // step { field 1000, a varint }
  const grpc::ByteBuffer buffer = Buffer("\x12\x03\xc0\x3e\x01");
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(ParseMessage(buffer, &parsed));
    // The first parse makes the step; later ones recycle it.
    parsed.mutable_step()->mutable_inline_();
  }
  EXPECT_EQ(parsed.step()
                .GetReflection()
                ->GetUnknownFields(parsed.step())
                .field_count(),
            1);
}

}  // namespace
}  // namespace flotilla
