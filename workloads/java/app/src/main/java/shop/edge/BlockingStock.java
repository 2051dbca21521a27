package shop.edge;

import io.netty.channel.Channel;
import java.io.IOException;
import java.net.Socket;
import java.util.function.LongConsumer;

/** The client of an older library: it reads until the answer is there. */
final class BlockingStock implements Stock {
    private final byte[] message = new byte[BYTES];
    private Socket socket;

    @Override
    public void open(Channel client) throws IOException {
        socket = new Socket(HOST, PORT);
        socket.setTcpNoDelay(true);
    }

    @Override
    public void ask(LongConsumer answer) throws IOException {
        socket.getOutputStream().write(message);
        for (int length = 0; length < message.length; ) {
            int n = socket.getInputStream().read(message, length, message.length - length);
            if (n < 0) {
                throw new IOException("the stock closed the connection");
            }
            length += n;
        }
        answer.accept(message[0]);
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
