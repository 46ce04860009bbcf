// Holds the room until its first source lands.
namespace assay { int placeholder_quant() { return 0; } }
