# A page behind a firewall that has one rule: the one of the post-mortem.
require "webrick"

RULE = /(?:(?:\"|'|\]|\}|\\|\d|(?:nan|infinity|true|false|null|undefined|symbol|math)|\`|\-|\+)+[)]*;?((?:\s|-|~|!|{}|\|\||\+)*.*(?:.*=.*)))/

server = WEBrick::HTTPServer.new(BindAddress: "127.0.0.1", Port: 8080, AccessLog: [],
                                 Logger: WEBrick::Log.new(File::NULL))
server.mount_proc("/page") do |request, response|
  blocked = ARGV[0] == "rule" && RULE.match?(request.query["text"].to_s)
  response.status = blocked ? 403 : 200
  response.body = (1..200).map { |n| "<li>#{n}</li>" }.join
end
trap("INT") { server.shutdown }
trap("TERM") { server.shutdown }
server.start
