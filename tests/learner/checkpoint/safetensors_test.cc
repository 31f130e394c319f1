#include "learner/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/python.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

std::string Written(const TensorMap& tensors) {
  std::string file;
  const absl::Status status =
      WriteSafetensors(tensors, [&](const void* data, size_t size) {
        file.append(static_cast<const char*>(data), size);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return file;
}

absl::StatusOr<TensorMap> Read(const std::string& file) {
  return ReadSafetensors(std::make_shared<std::string>(file));
}

std::string WithHeader(const std::string& json, const std::string& data = "") {
  const uint64_t length = json.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  return file + json + data;
}

void ExpectSameBits(const torch::Tensor& a, const torch::Tensor& b) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.sizes(), b.sizes());
  const torch::Tensor x = a.contiguous();
  const torch::Tensor y = b.contiguous();
  EXPECT_EQ(std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()), 0);
}

TEST(SafetensorsTest, EveryDtypeAndShapeReadsBackBitForBit) {
  TensorMap tensors;
  for (const auto dtype :
       {torch::kFloat32, torch::kFloat64, torch::kInt64, torch::kInt32,
        torch::kInt16, torch::kInt8, torch::kUInt8, torch::kBool,
        torch::kFloat16, torch::kBFloat16}) {
    tensors[std::string("t/") + c10::toString(dtype)] =
        (torch::randn({3, 5}) * 100).to(dtype);
  }
  tensors["scalar"] = torch::tensor(-0.0);
  tensors["empty"] = torch::zeros({0, 7});
  tensors["odd"] = torch::arange(3).to(torch::kUInt8);  // misaligns the next
  tensors["odd_next"] = torch::tensor({1.5, 2.5}, torch::kFloat64);
  tensors["nan"] = torch::tensor({std::numeric_limits<float>::quiet_NaN(),
                                  std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::denorm_min()});
  const auto read = Read(Written(tensors));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    SCOPED_TRACE(name);
    ExpectSameBits(tensor, read->at(name));
  }
}

TEST(SafetensorsTest, WritesStridedViewsAndParametersAsTheyLook) {
  TensorMap tensors;
  tensors["transposed"] = torch::arange(6).reshape({2, 3}).t();
  tensors["parameter"] = torch::ones({2}, torch::requires_grad());
  const auto read = Read(Written(tensors));
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectSameBits(tensors["transposed"], read->at("transposed"));
  ExpectSameBits(tensors["parameter"].detach(), read->at("parameter"));
}

TEST(SafetensorsTest, NamesMayHoldAnything) {
  TensorMap tensors;
  tensors["a \"quoted\\\" name\n"] = torch::ones({1});
  const auto read = Read(Written(tensors));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->contains("a \"quoted\\\" name\n"));
}

TEST(SafetensorsTest, NothingIsAFileToo) {
  const auto read = Read(Written({}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->empty());
}

TEST(SafetensorsTest, NamesATensorItCannotWrite) {
  const absl::Status status =
      WriteSafetensors({{"phase", torch::zeros({2}, torch::kComplexFloat)}},
                       [](const void*, size_t) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("\"phase\""), absl::string_view::npos)
      << status;
}

TEST(SafetensorsTest, ReturnsWhatTheSinkReturns) {
  EXPECT_EQ(WriteSafetensors({{"x", torch::ones({2})}},
                             [](const void*, size_t) {
                               return absl::ResourceExhaustedError("full");
                             }),
            absl::ResourceExhaustedError("full"));
}

TEST(SafetensorsTest, RefusesWhatIsNotInTheFormat) {
  const std::string good = Written({{"x", torch::ones({2})}});
  std::vector<std::string> bad = {
      "",
      "short",
      good.substr(0, good.size() - 1),
      WithHeader("{"),
      WithHeader("[]"),
      WithHeader("{\"x\": 1}"),
      WithHeader(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
      WithHeader(R"({"x":{"dtype":"F9","shape":[1],"data_offsets":[0,4]}})",
                 "1234"),
      WithHeader(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,3]}})",
                 "1234"),
      WithHeader(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
                 "1234"),
      WithHeader(R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
                 "1234"),
      WithHeader(
          R"({"x":{"dtype":"F32","shape":[1e14,1e14],"data_offsets":[0,4]}})",
          "1234"),
      std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}"};
  for (const std::string& file : bad) {
    const auto read = Read(file);
    EXPECT_TRUE(absl::IsDataLoss(read.status()))
        << read.status() << " for " << file.substr(0, 100);
  }
}

TEST(SafetensorsTest, TensorsThatOverlapOrLeaveHolesAreRefusedByName) {
  const auto two = [](const std::string& a, const std::string& b) {
    return WithHeader(
        absl::StrCat(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)", a,
                     R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)", b,
                     "}}"),
        "12345678");
  };
  EXPECT_TRUE(Read(two("[0,4]", "[4,8]")).ok());
  EXPECT_TRUE(Read(two("[4,8]", "[0,4]")).ok());  // in any order
  const std::pair<std::string, std::string> bad[] = {
      {two("[0,4]", "[0,4]"), "tensor \"b\" begins at byte 0, inside tensor"},
      {two("[2,6]", "[0,4]"), "tensor \"a\" begins at byte 2, inside tensor"},
      {two("[0,4]", "[3,7]"),
       "tensor \"b\" begins at byte 3, inside tensor "
       "\"a\", which ends at 4"},
      {WithHeader(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                  "12345678"),
       "the bytes after 4 of 8, behind tensor \"a\", are no tensor's"},
      {WithHeader(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                  "12345678"),
       "the bytes after 0 of 8, behind the header"}};
  for (const auto& [file, expected] : bad) {
    const absl::Status status = Read(file).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << expected;
    EXPECT_NE(status.message().find(expected), absl::string_view::npos)
        << status;
  }
}

TEST(SafetensorsTest, PythonReadsTheSameNumbers) {
  if (!TestPythonHas("safetensors.numpy")) {
    GTEST_SKIP() << "no safetensors in .deps/testvenv";
  }
  TempDir dir;
  WriteFile(dir / "weights.safetensors",
            Written({{"actor.0.weight",
                      torch::arange(6, torch::kFloat32).reshape({2, 3}) / 8},
                     {"count", torch::tensor(7)},
                     {"rng", torch::arange(5).to(torch::kUInt8)}}));
  const PythonResult result = RunPython(
      "import sys, numpy as np\n"
      "from safetensors.numpy import load_file\n"
      "t = load_file(sys.argv[1])\n"
      "assert sorted(t) == ['actor.0.weight', 'count', 'rng'], t\n"
      "w = t['actor.0.weight']\n"
      "assert w.dtype == np.float32\n"
      "assert (w == np.arange(6).reshape(2, 3) / 8).all(), w\n"
      "assert t['count'].shape == () and t['count'] == 7\n"
      "assert t['rng'].tolist() == [0, 1, 2, 3, 4]\n",
      dir / "weights.safetensors");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(SafetensorsTest, ReadsWhatPythonWrote) {
  if (!TestPythonHas("safetensors.numpy")) {
    GTEST_SKIP() << "no safetensors in .deps/testvenv";
  }
  TempDir dir;
  const PythonResult result = RunPython(
      "import sys, numpy as np\n"
      "from safetensors.numpy import save_file\n"
      "save_file({'w': np.arange(6, dtype=np.float64).reshape(2, 3),\n"
      "           'b': np.array([True, False])}, sys.argv[1],\n"
      "          metadata={'by': 'python'})\n",
      dir / "w.safetensors");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto read = Read(ReadFile(dir / "w.safetensors"));
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectSameBits(read->at("w"),
                 torch::arange(6, torch::kFloat64).reshape({2, 3}));
  ExpectSameBits(read->at("b"), torch::tensor({true, false}));
}

}  // namespace
}  // namespace flotilla
