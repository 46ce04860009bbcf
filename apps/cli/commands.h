// The commands of the program, one source each. Each takes the arguments after its name and returns
// the exit code; errors are thrown.
#pragma once

#include <string>
#include <vector>

namespace assay::cli {

using Arguments = std::vector<std::string>;

int run_command(const Arguments& arguments);
int chat_command(const Arguments& arguments);
int batch_command(const Arguments& arguments);
int tokenize_command(const Arguments& arguments);
int detokenize_command(const Arguments& arguments);
int template_command(const Arguments& arguments);
int pull_command(const Arguments& arguments);
int list_command(const Arguments& arguments);
int show_command(const Arguments& arguments);
int rm_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int logits_command(const Arguments& arguments);
int embed_command(const Arguments& arguments);
int trace_command(const Arguments& arguments);
int inspect_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int verify_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int perplexity_command(const Arguments& arguments);
int imatrix_command(const Arguments& arguments);
int diff_command(const Arguments& arguments);
int edit_command(const Arguments& arguments);
int split_command(const Arguments& arguments);
int merge_command(const Arguments& arguments);
int serve_command(const Arguments& arguments);
int quantize_command(const Arguments& arguments);
int check_schema_command(const Arguments& arguments);
int convert_command(const Arguments& arguments);
int devices_command(const Arguments& arguments);

}  // namespace assay::cli
