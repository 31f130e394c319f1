#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "launcher/commands/command.h"
#include "launcher/run_comparison.h"
#include "services/base/atomic_file.h"
#include "services/base/scratch_folder.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"

namespace flotilla {
namespace {

constexpr absl::Duration kDrawTimeout = absl::Minutes(1);
constexpr char kConverter[] = "rsvg-convert";

std::string ExtensionOf(const std::string& path) {
  return absl::AsciiStrToLower(
      std::filesystem::path(path).extension().string());
}

// Before anything is read.
absl::Status CheckOut(const std::string& out) {
  const std::string extension = ExtensionOf(out);
  for (const char* known : {".svg", ".html", ".md", ".png"}) {
    if (extension == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--out is \"", out,
                   "\"; expected a name that ends in .svg, .html, .md "
                   "or .png"));
}

// The path of a program of the system's; "" if there is none.
std::string OnPath(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const auto& folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string program = absl::StrCat(folder, "/", name);
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

absl::Status WritePng(const std::string& svg, const std::string& out) {
  const std::string converter = OnPath(kConverter);
  if (converter.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a .png takes ", kConverter,
        " (apt-get install librsvg2-bin), which "
        "is not on PATH; --out a name that ends in .svg or .html needs "
        "nothing"));
  }
  const ScratchFolder scratch;
  RETURN_IF_ERROR(scratch.status());
  const std::string source = scratch.path() + "/chart.svg";
  RETURN_IF_ERROR(WriteFileAtomically(source, svg));
  ASSIGN_OR_RETURN(const auto converting,
                   Subprocess::Start({.argv = {converter, "-o", out, source}}));
  const auto exit = converting->Wait(kDrawTimeout);
  if (exit && exit->code == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cannot write ", out, ": ", converter, " ended with ",
                   exit ? exit->ToString() : "nothing within a minute"));
}

// The table again, for a page.
std::string HtmlTable(const std::string& markdown) {
  std::string html = "<table>\n";
  bool head = true;
  for (const auto& line : absl::StrSplit(markdown, '\n', absl::SkipEmpty())) {
    if (line.find("| ---") == 0) continue;
    const std::vector<std::string> cells = absl::StrSplit(line, " | ");
    absl::StrAppend(&html, "<tr>");
    for (const std::string& cell : cells) {
      std::string text(absl::StripAsciiWhitespace(cell));
      if (!text.empty() && text.front() == '|') text.erase(0, 2);
      if (!text.empty() && text.back() == '|') text.erase(text.size() - 2);
      absl::StrAppend(&html, head ? "<th>" : "<td>", XmlText(text));
    }
    absl::StrAppend(&html, "\n");
    head = false;
  }
  return html + "</table>\n";
}

absl::Status Write(const Comparison& comparison, const std::string& out) {
  const std::string extension = ExtensionOf(out);
  const std::string svg = SvgOf(comparison.chart);
  if (extension == ".png") return WritePng(svg, out);
  if (extension == ".svg") return WriteFileAtomically(out, svg);
  const std::string& title = comparison.chart.title;
  if (extension == ".md") {
    return WriteFileAtomically(
        out, absl::StrCat("# ", title, "\n\n", comparison.table));
  }
  return WriteFileAtomically(
      out,
      absl::StrCat("<!doctype html>\n<meta charset=\"utf-8\">\n<title>",
                   XmlText(title),
                   "</title>\n<style>body { font: 14px sans-serif; margin: 2em "
                   "} td, th { padding: 0.2em 0.8em; text-align: right } "
                   "td:first-child, th:first-child { text-align: left }"
                   "</style>\n",
                   svg, HtmlTable(comparison.table)));
}

absl::Status Plot(const std::vector<std::string>& folders,
                  const ComparisonOptions& options,
                  const std::optional<std::string>& out) {
  if (out) RETURN_IF_ERROR(CheckOut(*out));
  ASSIGN_OR_RETURN(const std::vector<RunRecord> runs,
                   ReadRunRecords(folders, absl::Now()));
  const auto comparison = CompareRuns(runs, options);
  RETURN_IF_ERROR(comparison.status());
  for (const std::string& note : comparison->notes) {
    std::fprintf(stderr, "flotilla plot: %s\n", note.c_str());
  }
  if (out) RETURN_IF_ERROR(Write(*comparison, *out));
  std::printf("%s", comparison->table.c_str());
  if (out) std::printf("\n%s\n", out->c_str());
  return absl::OkStatus();
}

}  // namespace

int RunPlot(const Arguments& arguments) {
  ComparisonOptions options;
  std::optional<std::string> out;
  std::string x = "step";
  CommandLine line(
      "flotilla plot RUN... [flags]",
      "Compares runs of one environment, folders of runs too: prints a "
      "Markdown "
      "table of final\nvalues and, with --out, draws a line for each "
      "configuration, the seed apart.");
  line.Text("--metric", "NAME",
            "of metrics.jsonl (default: " + options.metric + ")",
            &options.metric);
  line.Choice("--x", {"step", "time"},
              "environment steps (default), or wall time", &x);
  line.Text("--out", "FILE",
            "a picture (.svg, .html; .png where rsvg-convert is), or the table "
            "(.md)",
            &out);
  line.Text("--group-by", "FIELD|run|none",
            "lines for the values of these fields (with commas; `learners` and "
            "`algorithm` too), for each run, or one for all",
            &options.group_by);
  line.Choice("--aggregate", {"auto", "mean", "iqm"},
              "of a group (auto: the interquartile mean from 10 runs each on, "
              "else the mean)",
              &options.aggregate);
  const ParsedLine parsed =
      ParseLine("plot", arguments, arguments.size(), &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.positional.empty()) {
    return ReportUsage(
        "plot", absl::InvalidArgumentError("name runs, or folders of runs"));
  }
  options.over_time = x == "time";
  const absl::Status plotted = Plot(parsed.positional, options, out);
  return plotted.ok() ? kExitDone : Report("plot", plotted);
}

}  // namespace flotilla
