class Aulos < Formula
  desc "Audio server for synchronized playback on Snapcast clients and in browsers"
  homepage "https://example.org/aulos"
  url "https://example.org/aulos/aulos-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build
  depends_on :linux

  def install
    system "cargo", "install", "--features", "s3", *std_cargo_args(path: "crates/aulos")
    generate_completions_from_executable(bin/"aulos", "completions")
    (man1/"aulos.1").write Utils.safe_popen_read(bin/"aulos", "man")
    (pkgshare/"examples").install "contrib/packaging/aulos.toml"
  end

  service do
    run [opt_bin/"aulos", "serve", "--state-dir", var/"aulos"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/aulos --version")
    (testpath/"aulos.toml").write "[[station]]\nname = \"a\"\nsources = [\"demo://\"]\n"
    system bin/"aulos", "check", "aulos.toml"
  end
end
