#ifndef FLOTILLA_SERVICES_BASE_CONFIG_H_
#define FLOTILLA_SERVICES_BASE_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "services/base/collection.h"

// Loads a RunConfig. proto/flotilla/v1/config.proto is where knobs are
// declared, defaulted and explained; nothing else in the tree repeats them.

namespace flotilla {

// Reads the text-format RunConfig at `path`, then applies `overrides` in order,
// each "dotted.path=value" as --set has it: strings unquoted, 1e6
// for integers, enums in any case, a list replaces ("[64,64]").
//
// Errors: kNotFound if there is no such file; kInvalidArgument, naming file,
// line and column (or the flag), the field, and the nearest known name, on a
// syntax error, an unknown field, a wrong type, or a path into an algorithm
// that the file did not choose. Does not validate.
absl::StatusOr<v1::RunConfig> LoadRunConfig(
    const std::string& path, const std::vector<std::string>& overrides);

// LoadRunConfig and Validate: what a program that starts a run wants.
// Errors: those of both. One line for each problem, each beginning with the
// place to change: "file:line:column: " or "--set path=value: ".
absl::StatusOr<v1::RunConfig> LoadValidRunConfig(
    const std::string& path, const std::vector<std::string>& overrides);

// Applies one "path=value".
// Errors: as LoadRunConfig's; `config` is then unchanged.
absl::Status ApplyOverride(const std::string& override_text,
                           v1::RunConfig* config);

// Checks what types cannot: ranges, divisibility, exactly one algorithm. Whether
// there is an environment of that id, its server knows. Every error names the
// field, its value and the remedy; there is one line for each.
absl::Status Validate(const v1::RunConfig& config);

// Writes every field, defaults included, in text format that LoadRunConfig
// reads back to the same message.
std::string FormatResolved(const v1::RunConfig& config);

// Every field set explicitly: submessages made, defaults written out, so that a
// later release cannot change a resumed run.
v1::RunConfig Resolved(const v1::RunConfig& config);

// When rollouts are collected.
Collection CollectionOf(const v1::RunConfig& config);

// "ppo", "dqn", "impala"; "none" if none is chosen.
std::string AlgorithmName(const v1::RunConfig& config);

// The field that brings a network of the user's own in place of the configured
// one: "model.torchscript", "model.plugin"; "" if none is set.
std::string OwnNetworkField(const v1::ModelConfig& model);

// The chosen algorithm's.
double Discount(const v1::RunConfig& config);

// Hex sha256 of FormatResolved: equal on all ranks of one run.
std::string ConfigDigest(const v1::RunConfig& config);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CONFIG_H_
