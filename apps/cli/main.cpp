// The program `assay`.
int main() { return 2; }
