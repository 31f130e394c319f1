#ifndef FLOTILLA_LAUNCHER_SUMMARY_H_
#define FLOTILLA_LAUNCHER_SUMMARY_H_

#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/struct.pb.h"

namespace flotilla {

// Reads a JSON object. Errors: kNotFound or kDataLoss, naming the file.
absl::StatusOr<google::protobuf::Struct> ReadJson(const std::string& path);

// A run's result for people, from the content of its summary.json.
std::string DescribeSummary(const google::protobuf::Struct& summary);

// A field as text or number; "" and 0 if it is not there.
std::string JsonText(const google::protobuf::Struct& object,
                     const std::string& name);
double JsonNumber(const google::protobuf::Struct& object,
                  const std::string& name);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_SUMMARY_H_
